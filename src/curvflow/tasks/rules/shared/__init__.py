"""Functions that several learning rules share."""
