"""Correlations and least-squares lines of two quantities, with tests and intervals."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import permutations

import numpy as np
import scipy
from scipy.special import ndtri

from curvflow.schemas.nodes import Array
from curvflow.tasks.statistics.bootstrap import NO_LIMITS, Limits

MAX_EXACT = 8  # values up to which all permutations are enumerated


@dataclass(frozen=True)
class Correlation:
    """A correlation coefficient with its interval and test; NaN where undefined.

    Attributes:
        value: between -1 and 1.
        limits: limits of its interval.
        p: two-sided p-value of the test of no correlation.
    """

    value: float = math.nan
    limits: Limits = NO_LIMITS
    p: float = math.nan


def fit_line(x_N: Array, y_N: Array) -> tuple[float, float]:
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


def spearman(x_N: Array, y_N: Array, confidence: float = 0.95) -> tuple[float, Limits]:
    """Return Spearman's rank correlation and its interval.

    Args:
        x_N: finite numbers; equal numbers share their mean rank.
        y_N: finite numbers.
        confidence: coverage of the interval.

    Returns:
        The correlation, NaN if x or y has fewer than two different values, and the
        limits tanh(atanh r -+ z sqrt((1 + r^2 / 2) / (N - 3))), NaN for N < 4 and
        where x and y are in perfect order.

    Reference:
        Bonett and Wright (2000), doi:10.1007/BF02294183, for the standard error.
    """
    if not _both_vary(x_N, y_N):
        return math.nan, NO_LIMITS
    r = float(np.corrcoef(_ranks(x_N), _ranks(y_N))[0, 1].clip(-1, 1))
    return r, _fisher_interval(r, 1 + r**2 / 2, len(x_N) - 3, confidence)


def pearson_test(x_N: Array, y_N: Array, confidence: float) -> Correlation:
    """Return Pearson's correlation, Fisher's interval and the t-test.

    Args:
        x_N: finite numbers.
        y_N: finite numbers.
        confidence: coverage of the interval for bivariate normal values.

    Returns:
        The limits are tanh(atanh r -+ z / sqrt(N - 3)).

    Reference:
        Fisher (1921), Metron 1, 3-32.
    """
    if not _both_vary(x_N, y_N):
        return Correlation()
    r = float(np.corrcoef(x_N, y_N)[0, 1].clip(-1, 1))
    limits = _fisher_interval(r, 1.0, len(x_N) - 3, confidence)
    return Correlation(r, limits, _p(scipy.stats.pearsonr, x_N, y_N))


def spearman_test(x_N: Array, y_N: Array, confidence: float) -> Correlation:
    """Return Spearman's rank correlation, its interval, and p, exact for few values.

    Args:
        x_N: finite numbers.
        y_N: finite numbers.
        confidence: coverage of the interval.

    Returns:
        As `spearman`, with the fraction of all permutations that correlate as much for
        up to eight values, else the p of `scipy.stats.spearmanr`, a t-test.
    """
    r, limits = spearman(x_N, y_N, confidence)
    return Correlation(r, limits, math.nan if math.isnan(r) else _rank_p(x_N, y_N))


def kendall_test(x_N: Array, y_N: Array, confidence: float) -> Correlation:
    """Return Kendall's tau-b, its interval, and p, exact for few values without ties.

    Args:
        x_N: finite numbers.
        y_N: finite numbers.
        confidence: coverage of the interval.

    Returns:
        The limits are tanh(atanh tau -+ z sqrt(0.437 / (N - 4))), NaN for N < 5.

    Reference:
        Fieller, Hartley and Pearson (1957), doi:10.1093/biomet/44.3-4.470, for the
        standard error; Kendall (1945), doi:10.1093/biomet/33.3.239, for ties.
    """
    if not _both_vary(x_N, y_N):
        return Correlation()
    result = scipy.stats.kendalltau(x_N, y_N)
    tau = float(result.statistic)
    limits = _fisher_interval(tau, 0.437, len(x_N) - 4, confidence)
    return Correlation(tau, limits, float(result.pvalue) if len(x_N) > 2 else math.nan)


CORRELATIONS: Mapping[str, Callable[[Array, Array, float], Correlation]] = {
    "pearson": pearson_test,
    "spearman": spearman_test,
    "kendall": kendall_test,
}


def _both_vary(x_N: Array, y_N: Array) -> bool:
    return bool(len(x_N) and x_N.min() < x_N.max() and y_N.min() < y_N.max())


def _fisher_interval(
    r: float, variance: float, freedom: int, confidence: float
) -> tuple[float, float]:
    """Return tanh(atanh r -+ z sqrt(variance / freedom))."""
    if freedom < 1 or abs(r) > 1 - 1e-12:
        return NO_LIMITS
    half = ndtri((1 + confidence) / 2) * math.sqrt(variance / freedom)
    return math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)


def _rank_p(x_N: Array, y_N: Array) -> float:
    if not 3 <= len(x_N) <= MAX_EXACT:
        return _p(scipy.stats.spearmanr, x_N, y_N)
    from_mean_N, other_N = (r - r.mean() for r in (_ranks(x_N), _ranks(y_N)))
    observed = abs(from_mean_N @ other_N)
    # Ranks are multiples of 1/2: sums of products differ by far more than rounding.
    as_much = np.abs(from_mean_N[_permutations(len(x_N))] @ other_N) > observed - 1e-6
    return float(as_much.mean())


@cache
def _permutations(count: int) -> Array:
    return np.array([*permutations(range(count))])


def _p(test: Callable[..., object], x_N: Array, y_N: Array) -> float:
    if len(x_N) < 3:
        return math.nan
    with warnings.catch_warnings():  # for values nearly without spread
        warnings.simplefilter("ignore", RuntimeWarning)
        return float(test(x_N, y_N).pvalue)  # type: ignore[attr-defined] # SciPy's


def _ranks(values_N: Array) -> Array:
    _, place, count = np.unique(values_N, return_inverse=True, return_counts=True)
    ranks: Array = (np.cumsum(count) - (count - 1) / 2)[place]
    return ranks


CHUNK_NUMBERS = 1 << 22  # numbers held at once


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
        num_resamples: number of resamples of N points.
        seed: seed of the draws.

    Returns:
        Its limits, over the resamples in which x and y vary; NaN for fewer than three
        points, and where all resamples agree, as in perfect order.

    Reference:
        Efron (1979), doi:10.1214/aos/1176344552.
    """
    count = len(x_N)
    if count < 3 or np.ptp(x_N) == 0 or np.ptp(y_N) == 0:
        return NO_LIMITS
    random = np.random.default_rng(seed)
    values = []
    left = num_resamples
    while left:
        draws = min(left, max(1, CHUNK_NUMBERS // count))
        values.append(_weighted(coefficient, x_N, y_N, _counts(random, draws, count)))
        left -= draws
    values_R = np.concatenate(values)
    values_R = values_R[np.isfinite(values_R)]
    if not len(values_R) or np.ptp(values_R) < 1e-12:
        return NO_LIMITS
    tail = (1 - confidence) / 2
    low, high = np.quantile(values_R, [tail, 1 - tail])
    return float(low), float(high)


def _counts(random: np.random.Generator, draws: int, count: int) -> Array:
    """Return the number of draws of each point, shape (draws, count)."""
    drawn = random.integers(count, size=(draws, count))
    drawn += count * np.arange(draws)[:, np.newaxis]
    counts = np.bincount(drawn.ravel(), minlength=draws * count)
    w_RN: Array = counts.reshape(draws, count).astype(np.float64)
    return w_RN


def _weighted(coefficient: str, x_N: Array, y_N: Array, w_RN: Array) -> Array:
    if coefficient == "kendall":
        return _tau(x_N, y_N, w_RN)
    if coefficient == "spearman":
        return _pearson(_weighted_ranks(x_N, w_RN), _weighted_ranks(y_N, w_RN), w_RN)
    return _moments(x_N - x_N.mean(), y_N - y_N.mean(), w_RN)


def _weighted_ranks(values_N: Array, w_RN: Array) -> Array:
    """Return mid-ranks among points that are each drawn w times, up to a shift."""
    below_NN = (values_N[:, np.newaxis] < values_N).astype(np.float64)
    equal_NN = (values_N[:, np.newaxis] == values_N).astype(np.float64)
    ranks: Array = w_RN @ (below_NN + equal_NN / 2)
    return ranks


def _moments(x_N: Array, y_N: Array, w_RN: Array) -> Array:
    """Return Pearson's correlation from sums of centred numbers."""
    sums = np.stack([x_N, y_N, x_N**2, y_N**2, x_N * y_N], axis=1)
    x, y, xx, yy, xy = (w_RN @ sums / len(x_N)).T
    xx, yy = xx - x**2, yy - y**2
    # Resamples without an outlier lose these differences to cancellation.
    poor_R = (xx < 1e-6 * xx.max()) | (yy < 1e-6 * yy.max())
    correlation_R = np.full(len(w_RN), math.nan)
    fine = ~poor_R
    correlation_R[fine] = _ratio((xy - x * y)[fine], xx[fine], yy[fine])
    if poor_R.any():
        few = x_N[np.newaxis], y_N[np.newaxis], w_RN[poor_R]
        correlation_R[poor_R] = _pearson(*few)
    return correlation_R


def _pearson(x_RN: Array, y_RN: Array, w_RN: Array) -> Array:
    total = w_RN.sum(axis=1, keepdims=True)
    centred, spreads = [], []
    for values in (x_RN, y_RN):
        from_mean = values - (w_RN * values).sum(axis=1, keepdims=True) / total
        spread_R = (w_RN * from_mean**2).sum(axis=1)
        # Equal values leave rounding errors.
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


def _ratio(both_R: Array, first_R: Array, second_R: Array) -> Array:
    """Return both / sqrt(first second); NaN where either has no spread."""
    spread_R = np.sqrt(first_R) * np.sqrt(second_R)
    varies_R = (first_R > 0) & (second_R > 0)
    ratio_R = np.full(both_R.shape, math.nan)
    np.divide(both_R, spread_R, out=ratio_R, where=varies_R)
    return ratio_R
