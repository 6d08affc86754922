"""Curvature in a training loop of the user's own."""
