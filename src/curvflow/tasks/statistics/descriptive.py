"""Mean, spread, quantiles and intervals of repeated measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
from scipy import stats
from scipy.special import stdtrit

from curvflow.schemas.nodes import Array
from curvflow.tasks.statistics.bootstrap import (
    NOWHERE,
    Limits,
    Resampling,
    Statistic,
    resampled_interval,
)


@dataclass(frozen=True)
class Statistics:
    """Statistics over N repetitions, each of shape (...).

    Attributes:
        count: finite values, n.
        mean: NaN without any.
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
            confidence: its coverage if the values are normal.

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
            spread: `ci95` for the interval, `sem` or `sd` for the mean -+ one, `range`
                for least to greatest, `none`.

        Returns:
            Lower and upper end; NaN for `none` and where there is no spread.
        """
        if spread == "ci95":
            return self.interval()
        some = np.where(self.count > 1, 1.0, np.nan)
        if spread == "range":
            return self.least * some, self.greatest * some
        half = {"sem": self.sem, "sd": self.sd, "none": np.nan * some}[spread]
        return self.mean - half, self.mean + half


def statistics(values_N: Array) -> Statistics:
    """Summarise repetitions; NaN and infinities are left out.

    Args:
        values_N: one row per repetition, shape (N, ...), N may be 0.

    Returns:
        Statistics of shape (...), whose bits do not depend on the order of the rows.
    """
    finite = np.isfinite(values_N)
    count = finite.sum(axis=0)
    ordered = np.sort(np.where(finite, values_N, np.nan), axis=0)  # NaN go last
    least, greatest = _extremes(ordered, count)
    n = np.where(count > 0, count, np.nan)
    # Differences from one of the values: equal values have exactly no spread. Sums
    # beyond the range of doubles become infinite, which says what it should.
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
    return stats.trim_mean(values, 0.25, axis=axis)


def _mad(values: Array, *, axis: int = -1) -> Any:
    return stats.median_abs_deviation(values, axis=axis)


def _quantile(values: Array, *, share: float, axis: int = -1) -> Any:
    return np.quantile(values, share, axis=axis)


RESAMPLED: Mapping[str, Statistic] = {
    "median": _median,
    "interquartile_mean": _interquartile_mean,
    "mad": _mad,
}
EXTREMES: Mapping[str, Any] = {"min": np.min, "max": np.max}


def further_statistics(
    values_NE: Array, names: Sequence[str], confidence: float, how: Resampling | None
) -> dict[str, Array]:
    """Return the statistics of some names, over the finite values of each column.

    Args:
        values_NE: a row per repetition, NaN for what is left out.
        names: of statistics but counts.
        confidence: coverage of intervals.
        how: of the bootstrap; None for intervals of the geometric mean alone.

    Returns:
        Each statistic, shape (E,), NaN without values; beside it `_low` and `_high`,
        where it has an interval.
    """
    found: dict[str, Array] = {}
    columns = _finite(values_NE)
    for name in names:
        if name == "geometric_mean":
            rows = [_geometric_mean(column, confidence, how) for column in columns]
        else:
            one = RESAMPLED.get(name) or EXTREMES[name]
            limits = how if name in RESAMPLED else None
            rows = [_estimate(column, one, confidence, limits) for column in columns]
        found[name] = np.array([value for value, _ in rows])
        if name == "geometric_mean" or (how and name in RESAMPLED):
            found[f"{name}_low"] = np.array([low for _, (low, _) in rows])
            found[f"{name}_high"] = np.array([high for _, (_, high) in rows])
    return found


def quantiles(
    values_NE: Array, shares: Sequence[float], confidence: float, how: Resampling | None
) -> dict[str, Array]:
    """Return quantiles of each column, by linear interpolation between its values.

    Args:
        values_NE: a row per repetition, NaN for what is left out.
        shares: Q of them, ascending.
        confidence: coverage of intervals.
        how: of the bootstrap; None for no intervals.

    Returns:
        `quantile` (Q,), `value_at` (E, Q), and, by the bootstrap, its limits.

    Reference:
        Hyndman and Fan (1996), doi:10.2307/2684934, definition 7.
    """
    rows = [
        [
            _estimate(column, partial(_quantile, share=share), confidence, how)
            for share in shares
        ]
        for column in _finite(values_NE)
    ]
    found = {
        "quantile": np.array(shares, dtype=np.float64),
        "value_at": np.array([[value for value, _ in row] for row in rows]),
    }
    if how:
        for place, end in enumerate(("low", "high")):
            limits = [[limits[place] for _, limits in row] for row in rows]
            found[f"value_at_{end}"] = np.array(limits)
    return found


def mean_interval(
    values_NE: Array, confidence: float, how: Resampling
) -> tuple[Array, Array]:
    """Return the bootstrap's interval for the mean of each column, shapes (E,)."""
    limits = [
        resampled_interval((column,), _mean, confidence, how)
        for column in _finite(values_NE)
    ]
    low, high = np.array(limits).reshape(-1, 2).T
    return low, high


def _finite(values_NE: Array) -> list[Array]:
    # Sorted, so that no bit depends on the order of the nodes.
    return [np.sort(column[np.isfinite(column)]) for column in values_NE.T]


def _estimate(
    values_N: Array, of: Statistic, confidence: float, how: Resampling | None
) -> tuple[float, Limits]:
    if not len(values_N):
        return np.nan, NOWHERE
    limits = resampled_interval((values_N,), of, confidence, how) if how else NOWHERE
    return float(of(values_N, axis=0)), limits


def _geometric_mean(
    values_N: Array, confidence: float, how: Resampling | None
) -> tuple[float, Limits]:
    if not len(values_N) or values_N.min() <= 0:
        return np.nan, NOWHERE
    logs_N = np.log(values_N)
    found = statistics(logs_N)
    if how:
        limits = resampled_interval((logs_N,), _mean, confidence, how)
    else:
        limits = cast("Limits", found.interval(confidence))
    with np.errstate(over="ignore"):  # infinite says what it should
        low, high = np.exp(np.array(limits))
    return float(np.exp(found.mean)), (float(low), float(high))
