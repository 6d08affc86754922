"""Curvature studies of neural networks from one declarative file."""

__version__ = "0.1.0"
