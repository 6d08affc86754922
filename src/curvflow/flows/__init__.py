"""WHEN each stage runs."""
