"""Densities of largest entropy that have given moments."""
