"""Declarations of aggregates over axes."""
