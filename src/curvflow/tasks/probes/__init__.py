"""Curvature probes, a file per kind."""
