"""Mean, spread and interval of repeated measurements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from curvflow.schemas.nodes import Array


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
