"""Curvature of one model without a study: operators with methods, measured results."""
