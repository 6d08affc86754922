"""Curvature probes, one file per kind."""
