"""Densities of the spectral laws of random matrices."""

from __future__ import annotations

import numpy as np

from curvflow.schemas.laws import Law, Semicircle
from curvflow.schemas.nodes import Array


def support(law: Law) -> tuple[float, float]:
    """Return the ends of the part of a law that has a density."""
    if isinstance(law, Semicircle):
        return -law.radius, law.radius
    root = law.ratio**0.5
    return law.variance * (1 - root) ** 2, law.variance * (1 + root) ** 2


def atom(law: Law) -> float:
    """Return the share of a law that lies at zero."""
    return 0.0 if isinstance(law, Semicircle) else max(0.0, 1 - 1 / law.ratio)


def law_density(law: Law, x: Array) -> Array:
    """Return the density of a law, apart from what lies at zero.

    Args:
        law: with its parameters.
        x: where to take it.

    Returns:
        The density, 0 outside the support; its integral is 1 less the atom.

    Reference:
        Wigner (1958), doi:10.2307/1970008. Marchenko and Pastur (1967),
        doi:10.1070/SM1967v001n04ABEH001994.
    """
    low, high = support(law)
    inside = np.sqrt(np.clip((x - low) * (high - x), 0, None))
    if isinstance(law, Semicircle):
        return 2 / (np.pi * law.radius**2) * inside
    below = 2 * np.pi * law.variance * law.ratio * np.where(inside > 0, x, 1)
    return inside / below
