"""Figures, a file per kind."""
