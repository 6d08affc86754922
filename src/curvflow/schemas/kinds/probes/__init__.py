"""Declarations of curvature probes."""
