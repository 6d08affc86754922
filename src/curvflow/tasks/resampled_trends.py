"""Correlations of resampled points, by how often each point is drawn."""

from __future__ import annotations

import math

import numpy as np

from curvflow.schemas.nodes import Array
from curvflow.tasks.trends import NO_INTERVAL, Limits

CHUNK = 1 << 22  # numbers held at once


def correlation_interval(
    coefficient: str,
    x_N: Array,
    y_N: Array,
    *,
    confidence: float,
    num_resamples: int,
    seed: int,
) -> Limits:
    """Return the percentile bootstrap's interval for a correlation, over points.

    Args:
        coefficient: pearson, spearman or kendall.
        x_N: finite numbers.
        y_N: finite numbers.
        confidence: coverage of the interval.
        num_resamples: how often N points are drawn.
        seed: of the draws.

    Returns:
        Its limits, over the resamples in which x and y vary; NaN for fewer than three
        points, and where all resamples agree, as in perfect order.

    Reference:
        Efron (1979), doi:10.1214/aos/1176344552.
    """
    count = len(x_N)
    if count < 3 or np.ptp(x_N) == 0 or np.ptp(y_N) == 0:
        return NO_INTERVAL
    random = np.random.default_rng(seed)
    values = []
    left = num_resamples
    while left:
        draws = min(left, max(1, CHUNK // count))
        values.append(_weighted(coefficient, x_N, y_N, _counts(random, draws, count)))
        left -= draws
    found_R = np.concatenate(values)
    found_R = found_R[np.isfinite(found_R)]
    if not len(found_R) or np.ptp(found_R) < 1e-12:
        return NO_INTERVAL
    tail = (1 - confidence) / 2
    low, high = np.quantile(found_R, [tail, 1 - tail])
    return float(low), float(high)


def _counts(random: np.random.Generator, draws: int, count: int) -> Array:
    """Return how often each point is drawn, shape (draws, count)."""
    drawn = random.integers(count, size=(draws, count))
    drawn += count * np.arange(draws)[:, np.newaxis]
    counts = np.bincount(drawn.ravel(), minlength=draws * count)
    w_RN: Array = counts.reshape(draws, count).astype(np.float64)
    return w_RN


def _weighted(coefficient: str, x_N: Array, y_N: Array, w_RN: Array) -> Array:
    if coefficient == "kendall":
        return _tau(x_N, y_N, w_RN)
    if coefficient == "spearman":
        return _pearson(_ranks(x_N, w_RN), _ranks(y_N, w_RN), w_RN)
    return _moments(x_N - x_N.mean(), y_N - y_N.mean(), w_RN)


def _ranks(values_N: Array, w_RN: Array) -> Array:
    """Return mid-ranks among points of which each is drawn w times, up to a shift."""
    below_NN = (values_N[:, np.newaxis] < values_N).astype(np.float64)
    equal_NN = (values_N[:, np.newaxis] == values_N).astype(np.float64)
    ranks: Array = w_RN @ (below_NN + equal_NN / 2)
    return ranks


def _moments(x_N: Array, y_N: Array, w_RN: Array) -> Array:
    """Return Pearson's correlation from sums, of numbers about their means."""
    sums = np.stack([x_N, y_N, x_N**2, y_N**2, x_N * y_N], axis=1)
    x, y, xx, yy, xy = (w_RN @ sums / len(x_N)).T
    xx, yy = xx - x**2, yy - y**2
    # Where an outlier is not drawn little is left of these differences.
    poor_R = (xx < 1e-6 * xx.max()) | (yy < 1e-6 * yy.max())
    found_R = np.full(len(w_RN), math.nan)
    fine = ~poor_R
    found_R[fine] = _ratio((xy - x * y)[fine], xx[fine], yy[fine])
    if poor_R.any():
        few = x_N[np.newaxis], y_N[np.newaxis], w_RN[poor_R]
        found_R[poor_R] = _pearson(*few)
    return found_R


def _pearson(x_RN: Array, y_RN: Array, w_RN: Array) -> Array:
    total = w_RN.sum(axis=1, keepdims=True)
    centred, spreads = [], []
    for values in (x_RN, y_RN):
        from_mean = values - (w_RN * values).sum(axis=1, keepdims=True) / total
        spread_R = (w_RN * from_mean**2).sum(axis=1)
        # Of values that are all the same rounding is left.
        rounding = w_RN.shape[1] * (1e-14 * np.abs(values).max()) ** 2
        spreads.append(np.where(spread_R > rounding, spread_R, 0.0))
        centred.append(from_mean)
    return _ratio((w_RN * centred[0] * centred[1]).sum(axis=1), *spreads)


def _tau(x_N: Array, y_N: Array, w_RN: Array) -> Array:
    x_NN, y_NN = (np.sign(v[:, np.newaxis] - v) for v in (x_N, y_N))
    sums = [
        ((w_RN @ pairs) * w_RN).sum(axis=1) for pairs in (x_NN * y_NN, x_NN**2, y_NN**2)
    ]
    return _ratio(*sums)


def _ratio(both_R: Array, one_R: Array, other_R: Array) -> Array:
    """Return both / sqrt(one other); NaN where one has no spread but rounding."""
    spread_R = np.sqrt(one_R) * np.sqrt(other_R)
    varies_R = (one_R > 0) & (other_R > 0)
    found_R = np.full(both_R.shape, math.nan)
    np.divide(both_R, spread_R, out=found_R, where=varies_R)
    return found_R
