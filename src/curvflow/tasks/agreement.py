"""Whether independent estimates of one quantity agree within their errors.

Letters: R routes to the quantity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, stdtr, stdtrit

from curvflow.schemas.nodes import Array


@dataclass(frozen=True)
class Route:
    """One estimate of a quantity.

    Attributes:
        name: of the route.
        value: the estimate.
        sem: its standard error; 0 if it is exact.
        draws: how many draws the standard error comes from; None if it is known.
    """

    name: str
    value: float
    sem: float = 0.0
    draws: int | None = None


@dataclass(frozen=True)
class Agreement:
    """How routes compare.

    Attributes:
        z: of the difference of each two, as a normal deviate of the same tail, (R, R);
            NaN on the diagonal and where an error is not known.
        limit: the |z| beyond which two disagree.
        resolution: difference of each two, relative to the larger, that would just
            have been seen, (R, R).
    """

    z: Array
    limit: float
    resolution: Array

    @property
    def judged(self) -> Array:
        """Which pairs can be compared, (R, R)."""
        return np.isfinite(self.z)

    @property
    def consistent(self) -> bool:
        """Whether all pairs can be compared, and none disagrees."""
        apart = ~np.eye(len(self.z), dtype=bool)
        return bool(self.judged[apart].all() and self.z[apart].max() <= self.limit)


def agreement(
    routes: Sequence[Route], *, confidence: float, rounding: float
) -> Agreement:
    """Compare all routes with one another.

    Errors of few draws have Student's heavier tails, by Welch's degrees of freedom. The
    limit is such that routes which are all right agree, all pairs together, with the
    confidence asked for (Bonferroni's bound).

    Args:
        routes: R of them.
        confidence: chance that sound routes are called consistent.
        rounding: error of every route relative to the larger of two, in place of what
            estimates do not state: truncation and rounding.

    Returns:
        Deviates of all pairs, and what could have been seen.

    Reference:
        Welch (1947), doi:10.1093/biomet/34.1-2.28, for the degrees of freedom.
    """
    value_R = np.array([route.value for route in routes])
    square_R = np.array([route.sem for route in routes]) ** 2
    freedom_R = np.array([np.inf if r.draws is None else r.draws - 1 for r in routes])
    scale_RR = np.maximum.outer(np.abs(value_R), np.abs(value_R))
    pairs = max(1, len(routes) * (len(routes) - 1) // 2)
    tail = (1 - confidence) / (2 * pairs)
    with np.errstate(divide="ignore", invalid="ignore"):
        sum_RR = np.add.outer(square_R, square_R)
        fourth_R = square_R**2 / freedom_R
        freedom_RR = sum_RR**2 / np.add.outer(fourth_R, fourth_R)
        freedom_RR = np.where(np.isnan(freedom_RR), np.inf, freedom_RR)
        half_RR = np.sqrt(sum_RR + (rounding * scale_RR) ** 2)
        t_RR = np.subtract.outer(value_R, value_R) / half_RR
        t_RR[(np.subtract.outer(value_R, value_R) == 0) & (half_RR == 0)] = 0.0
        z_RR = np.sign(t_RR) * -ndtri(_tail(np.abs(t_RR), freedom_RR))
        limit_RR = -stdtrit(np.where(np.isinf(freedom_RR), 1e12, freedom_RR), tail)
        resolution_RR = limit_RR * half_RR / scale_RR
    np.fill_diagonal(z_RR, np.nan)
    np.fill_diagonal(resolution_RR, np.nan)
    return Agreement(z_RR, float(-ndtri(tail)), resolution_RR)


def _tail(t: Array, freedom: Array) -> Array:
    """Return Student's upper tail, kept above what doubles hold."""
    tail = np.where(
        np.isinf(freedom), stdtr(1e12, -t), stdtr(np.minimum(freedom, 1e12), -t)
    )
    kept: Array = np.where(np.isnan(t), np.nan, np.maximum(tail, 1e-300))
    return kept
