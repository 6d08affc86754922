"""Aggregates over axes, a file per kind."""
