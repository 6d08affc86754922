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
    if count < 3:
        return NO_INTERVAL
    random = np.random.default_rng(seed)
    values = []
    left = num_resamples
    while left:
        draws = min(left, max(1, CHUNK // count))
        w_RN = random.multinomial(count, np.full(count, 1 / count), draws)
        values.append(_weighted(coefficient, x_N, y_N, w_RN.astype(np.float64)))
        left -= draws
    found_R = np.concatenate(values)
    found_R = found_R[np.isfinite(found_R)]
    if not len(found_R) or np.ptp(found_R) < 1e-12:
        return NO_INTERVAL
    tail = (1 - confidence) / 2
    low, high = np.quantile(found_R, [tail, 1 - tail])
    return float(low), float(high)


def _weighted(coefficient: str, x_N: Array, y_N: Array, w_RN: Array) -> Array:
    if coefficient == "kendall":
        return _tau(x_N, y_N, w_RN)
    if coefficient == "spearman":
        return _pearson(_ranks(x_N, w_RN), _ranks(y_N, w_RN), w_RN)
    return _pearson(x_N[np.newaxis], y_N[np.newaxis], w_RN)


def _ranks(values_N: Array, w_RN: Array) -> Array:
    """Return mid-ranks among points of which each is drawn w times, up to a shift."""
    below_NN = (values_N[:, np.newaxis] < values_N).astype(np.float64)
    equal_NN = (values_N[:, np.newaxis] == values_N).astype(np.float64)
    ranks: Array = w_RN @ (below_NN + equal_NN / 2)
    return ranks


def _pearson(x_RN: Array, y_RN: Array, w_RN: Array) -> Array:
    total = w_RN.sum(axis=1, keepdims=True)
    x_RN = x_RN - (w_RN * x_RN).sum(axis=1, keepdims=True) / total
    y_RN = y_RN - (w_RN * y_RN).sum(axis=1, keepdims=True) / total
    return _ratio(
        (w_RN * x_RN * y_RN).sum(axis=1),
        (w_RN * x_RN**2).sum(axis=1),
        (w_RN * y_RN**2).sum(axis=1),
    )


def _tau(x_N: Array, y_N: Array, w_RN: Array) -> Array:
    x_NN, y_NN = (np.sign(v[:, np.newaxis] - v) for v in (x_N, y_N))
    sums = [
        ((w_RN @ pairs) * w_RN).sum(axis=1) for pairs in (x_NN * y_NN, x_NN**2, y_NN**2)
    ]
    return _ratio(*sums)


def _ratio(both_R: Array, one_R: Array, other_R: Array) -> Array:
    """Return both / sqrt(one other); NaN where one has no spread but rounding."""
    spread_R = np.sqrt(one_R) * np.sqrt(other_R)
    varies_R = (one_R > 1e-24 * one_R.max()) & (other_R > 1e-24 * other_R.max())
    found_R = np.full(both_R.shape, math.nan)
    np.divide(both_R, spread_R, out=found_R, where=varies_R)
    return found_R
