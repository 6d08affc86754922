"""Declarations of weights that no training of a study gave."""
