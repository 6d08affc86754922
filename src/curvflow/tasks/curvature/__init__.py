"""Curvature operators of the members of a tile, their Ritz data and eigenpairs."""
