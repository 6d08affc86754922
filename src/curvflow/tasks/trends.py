"""How two measured numbers go together."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from curvflow.schemas.nodes import Array

NO_INTERVAL = (math.nan, math.nan)


def line(x_N: Array, y_N: Array) -> tuple[float, float]:
    """Fit y = intercept + slope x by least squares.

    Args:
        x_N: finite numbers.
        y_N: finite numbers.

    Returns:
        Slope and intercept; NaN for fewer than two different x.
    """
    if len(x_N) < 2 or x_N.min() == x_N.max():
        return math.nan, math.nan
    from_mean = x_N - x_N.mean()
    slope = float((from_mean * y_N).sum() / (from_mean**2).sum())
    return slope, float(y_N.mean() - slope * x_N.mean())


def spearman(x_N: Array, y_N: Array) -> tuple[float, tuple[float, float]]:
    """Return Spearman's rank correlation and its 95 % interval.

    Args:
        x_N: finite numbers; equal ones share their ranks' mean.
        y_N: finite numbers.

    Returns:
        The correlation, NaN if x or y has fewer than two different values, and the
        limits tanh(atanh r -+ z sqrt((1 + r^2 / 2) / (N - 3))), NaN for N < 4 and
        where x and y are in perfect order.

    Reference:
        Bonett and Wright (2000), doi:10.1007/BF02294183, for the standard error.
    """
    if not len(x_N) or x_N.min() == x_N.max() or y_N.min() == y_N.max():
        return math.nan, NO_INTERVAL
    r = float(np.corrcoef(_ranks(x_N), _ranks(y_N))[0, 1].clip(-1, 1))
    if len(x_N) < 4 or abs(r) > 1 - 1e-12:
        return r, NO_INTERVAL
    half = ndtri(0.975) * math.sqrt((1 + r**2 / 2) / (len(x_N) - 3))
    return r, (math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half))


def _ranks(values_N: Array) -> Array:
    _, place, count = np.unique(values_N, return_inverse=True, return_counts=True)
    ranks: Array = (np.cumsum(count) - (count - 1) / 2)[place]
    return ranks
