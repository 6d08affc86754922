"""Declarations of figures."""
