"""Figures are placed and not drawn, but for tests marked `pictures`."""

from tests.pictures import _figures_are_placed_only

__all__ = ["_figures_are_placed_only"]
