"""Descriptive statistics of repetitions: mean, spread, quantiles and intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import scipy
from scipy.special import betaincinv, stdtrit

from curvflow.schemas.nodes import Array
from curvflow.tasks.statistics.bootstrap import (
    NO_LIMITS,
    Limits,
    Resampling,
    Statistic,
    resampled_interval,
)


@dataclass(frozen=True)
class Statistics:
    """Statistics over N repetitions, each of shape (...).

    Attributes:
        count: number of finite values, n.
        mean: mean; NaN without finite values.
        sd: standard deviation with n - 1; NaN for fewer than two values.
        sem: standard error of the mean, sd / sqrt(n).
        least: smallest value.
        greatest: largest value.
    """

    count: Array
    mean: Array
    sd: Array
    sem: Array
    least: Array
    greatest: Array

    def interval(self, confidence: float = 0.95) -> tuple[Array, Array]:
        """Return Student's interval for the mean, mean -+ t(n - 1) sem.

        Args:
            confidence: coverage for normal values.

        Returns:
            Lower and upper limit; NaN for fewer than two values.

        Reference:
            Student (1908), doi:10.1093/biomet/6.1.1.
        """
        freedom = np.where(self.count > 1, self.count - 1, np.nan)
        half = stdtrit(freedom, (1 + confidence) / 2) * self.sem
        return self.mean - half, self.mean + half

    def ends(self, spread: str) -> tuple[Array, Array]:
        """Return the ends of an error bar.

        Args:
            spread: `ci95` for the interval, `sem` or `sd` for the mean -+ that error,
                `range` for least to greatest, `none`.

        Returns:
            Lower and upper end; NaN for `none` and where there is no spread.
        """
        if spread == "ci95":
            return self.interval()
        defined = np.where(self.count > 1, 1.0, np.nan)
        if spread == "range":
            return self.least * defined, self.greatest * defined
        half = {"sem": self.sem, "sd": self.sd, "none": np.nan * defined}[spread]
        return self.mean - half, self.mean + half


def statistics(values_N: Array) -> Statistics:
    """Summarise repetitions without NaN and infinities.

    Args:
        values_N: a row per repetition, shape (N, ...); N may be 0.

    Returns:
        Statistics of shape (...), whose bits do not depend on the order of the rows.
    """
    finite = np.isfinite(values_N)
    count = finite.sum(axis=0)
    ordered = np.sort(np.where(finite, values_N, np.nan), axis=0)  # NaN go last
    least, greatest = _extremes(ordered, count)
    n = np.where(count > 0, count, np.nan)
    # Differences from the least value, so that equal values have exactly no spread.
    # Sums beyond the range of doubles become infinite, as they should.
    with np.errstate(over="ignore", invalid="ignore"):
        above = np.where(np.isnan(ordered), 0.0, ordered - least)
        mean_above = above.sum(axis=0) / n
        squares = np.where(np.isnan(ordered), 0.0, (above - mean_above) ** 2)
        sd = np.sqrt(squares.sum(axis=0) / np.where(count > 1, count - 1, np.nan))
        return Statistics(
            count, least + mean_above, sd, sd / np.sqrt(n), least, greatest
        )


def _extremes(ordered: Array, count: Array) -> tuple[Array, Array]:
    if not len(ordered):
        nothing = np.full(count.shape, np.nan)
        return nothing, nothing
    last = np.maximum(count - 1, 0)[np.newaxis]
    return ordered[0], np.take_along_axis(ordered, last, axis=0)[0]


def _mean(values: Array, *, axis: int = -1) -> Any:
    return values.mean(axis=axis)


def _median(values: Array, *, axis: int = -1) -> Any:
    return np.median(values, axis=axis)


def _interquartile_mean(values: Array, *, axis: int = -1) -> Any:
    return scipy.stats.trim_mean(values, 0.25, axis=axis)


def _mad(values: Array, *, axis: int = -1) -> Any:
    return scipy.stats.median_abs_deviation(values, axis=axis)


def _quantile(values: Array, *, share: float, axis: int = -1) -> Any:
    return np.quantile(values, share, axis=axis)


RESAMPLED: Mapping[str, Statistic] = {
    "median": _median,
    "interquartile_mean": _interquartile_mean,
    "mad": _mad,
}
EXTREMES: Mapping[str, Any] = {"min": np.min, "max": np.max}


def further_statistics(
    values_NE: Array,
    names: Sequence[str],
    confidence: float,
    resampling: Resampling | None,
) -> dict[str, Array]:
    """Return the named statistics of the finite values of each column.

    Args:
        values_NE: a row per repetition, NaN for excluded values.
        names: names of statistics, counts excepted.
        confidence: coverage of intervals.
        resampling: settings of the bootstrap; None for an interval of the geometric
            mean alone.

    Returns:
        Each statistic, shape (E,), NaN without values, with `_low` and `_high` where it
        has an interval.
    """
    table: dict[str, Array] = {}
    columns = _finite(values_NE)
    for name in names:
        if name == "geometric_mean":
            rows = [
                _geometric_mean(column, confidence, resampling) for column in columns
            ]
        else:
            statistic = RESAMPLED.get(name) or EXTREMES[name]
            limits = resampling if name in RESAMPLED else None
            rows = [
                _estimate(column, statistic, confidence, limits) for column in columns
            ]
        table[name] = np.array([value for value, _ in rows])
        if name == "geometric_mean" or (resampling and name in RESAMPLED):
            table[f"{name}_low"] = np.array([low for _, (low, _) in rows])
            table[f"{name}_high"] = np.array([high for _, (_, high) in rows])
    return table


def quantiles(
    values_NE: Array,
    shares: Sequence[float],
    confidence: float,
    resampling: Resampling | None,
) -> dict[str, Array]:
    """Return quantiles of each column, by linear interpolation between its values.

    Args:
        values_NE: a row per repetition, NaN for excluded values.
        shares: Q probabilities, ascending.
        confidence: coverage of intervals.
        resampling: settings of the bootstrap; None for no intervals.

    Returns:
        `quantile` (Q,), `value_at` (E, Q) and the limits of its bootstrap interval.

    Reference:
        Hyndman and Fan (1996), doi:10.2307/2684934, definition 7.
    """
    rows = [
        [
            _estimate(column, partial(_quantile, share=share), confidence, resampling)
            for share in shares
        ]
        for column in _finite(values_NE)
    ]
    table = {
        "quantile": np.array(shares, dtype=np.float64),
        "value_at": np.array([[value for value, _ in row] for row in rows]),
    }
    if resampling:
        for place, end in enumerate(("low", "high")):
            limits = [[limits[place] for _, limits in row] for row in rows]
            table[f"value_at_{end}"] = np.array(limits)
    return table


def mean_interval(
    values_NE: Array, confidence: float, resampling: Resampling
) -> tuple[Array, Array]:
    """Return the bootstrap interval for the mean of each column, shapes (E,)."""
    limits = [
        resampled_interval((column,), _mean, confidence, resampling)
        for column in _finite(values_NE)
    ]
    low, high = np.array(limits).reshape(-1, 2).T
    return low, high


def _finite(values_NE: Array) -> list[Array]:
    # Sorted, so that no bit depends on the order of the nodes.
    return [np.sort(column[np.isfinite(column)]) for column in values_NE.T]


def _estimate(
    values_N: Array,
    statistic: Statistic,
    confidence: float,
    resampling: Resampling | None,
) -> tuple[float, Limits]:
    if not len(values_N):
        return np.nan, NO_LIMITS
    limits = (
        resampled_interval((values_N,), statistic, confidence, resampling)
        if resampling
        else NO_LIMITS
    )
    return float(statistic(values_N, axis=0)), limits


def _geometric_mean(
    values_N: Array, confidence: float, resampling: Resampling | None
) -> tuple[float, Limits]:
    if not len(values_N) or values_N.min() <= 0:
        return np.nan, NO_LIMITS
    logs_N = np.log(values_N)
    log_statistics = statistics(logs_N)
    if resampling:
        limits = resampled_interval((logs_N,), _mean, confidence, resampling)
    else:
        limits = cast("Limits", log_statistics.interval(confidence))
    with np.errstate(over="ignore"):  # overflow is infinite, as it should be
        low, high = np.exp(np.array(limits))
    return float(np.exp(log_statistics.mean)), (float(low), float(high))


def clopper_pearson(hits: int, count: int, tail: float) -> tuple[float, float]:
    """Return the limits of a share that was counted; NaN without a count.

    Args:
        hits: how many of them.
        count: of how many.
        tail: most probability beyond either limit.

    Returns:
        The lower and the upper limit.

    Reference:
        Clopper and Pearson (1934), doi:10.1093/biomet/26.4.404.
    """
    if not count:
        return np.nan, np.nan
    low = betaincinv(hits, count - hits + 1, tail) if hits else 0.0
    high = betaincinv(hits + 1, count - hits, 1 - tail) if hits < count else 1.0
    return float(low), float(high)
