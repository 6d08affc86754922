"""Declarations of data sets."""
