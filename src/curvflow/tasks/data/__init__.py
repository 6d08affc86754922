"""Data sets, one file per kind."""
