"""Weights that no training of a study gave."""
