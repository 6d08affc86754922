"""Curvature of the members of a tile: operators and their spectra."""
