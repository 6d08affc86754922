"""Aggregates over axes, one file per kind."""
