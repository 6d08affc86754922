"""Differences of means, paired or not: intervals, tests and effect sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from scipy.special import stdtr, stdtrit

from curvflow.schemas.nodes import Array
from curvflow.tasks.statistics.bootstrap import (
    NO_LIMITS,
    Limits,
    Resampling,
    resampled_interval,
)
from curvflow.tasks.statistics.descriptive import statistics


@dataclass(frozen=True)
class Difference:
    """A difference of two means; NaN where there are too few values or no spread.

    Attributes:
        mean: first minus second.
        sd: standard deviation of paired differences; NaN if not paired.
        sem: standard error of the mean.
        limits: limits of Student's interval; Welch's if not paired.
        p_t: two-sided p of Student's or Welch's test.
        p_rank: p of Wilcoxon's signed-rank test, or of Mann and Whitney's.
        effect: standardised mean difference.
        freedom: degrees of freedom of the standard deviation in `effect`.
    """

    mean: float
    sd: float = math.nan
    sem: float = math.nan
    limits: Limits = NO_LIMITS
    p_t: float = math.nan
    p_rank: float = math.nan
    effect: float = math.nan
    freedom: float = 0

    @property
    def hedges_g(self) -> float:
        """Hedges' g: the effect times the exact correction for few values."""
        half = self.freedom / 2
        if half <= 0.5:
            return math.nan
        log_j = math.lgamma(half) - math.lgamma(half - 0.5) - 0.5 * math.log(half)
        return self.effect * math.exp(log_j)


def paired_difference(
    differences_N: Array, confidence: float, *, largest: float = 0.0
) -> Difference:
    """Summarise finite differences of pairs.

    Args:
        differences_N: first minus second of each pair, (N,); N may be 0.
        confidence: coverage of the interval.
        largest: magnitude of the subtracted values; spread within their rounding counts
            as none.

    Returns:
        Mean, interval, tests of no difference, and Cohen's d_z = mean / sd.

    Reference:
        Student (1908), doi:10.1093/biomet/6.1.1; Wilcoxon (1945), doi:10.2307/3001968;
        Cohen (1988), Statistical Power Analysis, section 2.3.5, for d_z; Hedges (1981),
        doi:10.3102/10769986006002107, for the correction.
    """
    summary = statistics(differences_N)
    mean, sd, sem = (float(x) for x in (summary.mean, summary.sd, summary.sem))
    low, high = summary.interval(confidence)
    limits = float(low), float(high)
    if not sd > 2 * np.finfo(np.float64).eps * largest:  # no test without spread
        return Difference(mean, sd, sem, limits)
    return Difference(
        mean,
        sd,
        sem,
        limits,
        _two_sided(mean / sem, len(differences_N) - 1),
        float(scipy.stats.wilcoxon(differences_N).pvalue),
        mean / sd,
        len(differences_N) - 1,
    )


def unpaired_difference(
    first_N: Array, second_N: Array, confidence: float
) -> Difference:
    """Compare the means of two samples of finite values with unequal variances.

    Args:
        first_N: first sample, shape (N,).
        second_N: second sample, of any size.
        confidence: coverage of the interval.

    Returns:
        Difference, Welch's interval and test, Mann and Whitney's test, and Cohen's d
        with the mean of the two variances, whose degrees of freedom are Welch's.

    Reference:
        Welch (1947), doi:10.1093/biomet/34.1-2.28; Mann and Whitney (1947),
        doi:10.1214/aoms/1177730491; Cohen (1988), section 2.3.2, for unequal variances;
        Delacre et al. (2021), doi:10.31234/osf.io/tu6mp, for their correction.
    """
    first, second = statistics(first_N), statistics(second_N)
    mean = float(first.mean - second.mean)
    spread = float(np.sqrt((first.sd**2 + second.sd**2) / 2))
    sem = float(np.hypot(first.sem, second.sem))
    if not spread > 0:
        return Difference(mean, sem=sem, limits=(mean - sem, mean + sem))
    counts = np.array([len(first_N), len(second_N)])
    parts = np.square(np.array([first.sem, second.sem]) / sem)
    freedom = float(1 / (parts**2 / (counts - 1)).sum())
    half = float(stdtrit(freedom, (1 + confidence) / 2)) * sem
    shares = np.square(np.array([first.sd, second.sd]) / spread) / 2
    ranks = scipy.stats.mannwhitneyu(first_N, second_N)
    return Difference(
        mean,
        sem=sem,
        limits=(mean - half, mean + half),
        p_t=_two_sided(mean / sem, freedom),
        p_rank=float(ranks.pvalue),
        effect=mean / spread,
        freedom=float(1 / (shares**2 / (counts - 1)).sum()),
    )


def _two_sided(t: float, freedom: float) -> float:
    """Return Student's p; SciPy's tests warn where a sample has no spread."""
    return float(2 * stdtr(freedom, -abs(t)))


def bootstrap_interval(
    samples: tuple[Array, ...], confidence: float, resampling: Resampling
) -> Limits:
    """Return an interval for the mean of one sample, or the difference of two means.

    Args:
        samples: one or two samples of finite values.
        confidence: coverage of the interval.
        resampling: kind, number of resamples and seed.

    Returns:
        Its limits; both the mean where values have no spread, NaN for fewer than two.
    """
    return resampled_interval(samples, _mean, confidence, resampling)


def _mean(*samples: Array, axis: int = -1) -> Array:
    first, *others = (np.asarray(sample.mean(axis=axis)) for sample in samples)
    mean: Array = first - others[0] if others else first
    return mean


def holm(p_R: Array) -> Array:
    """Correct p-values for multiple tests by Holm's step-down procedure.

    Args:
        p_R: shape (R,); NaN stands for no test and stays.

    Returns:
        Corrected p-values, at most 1, which control the family-wise error rate.

    Reference:
        Holm (1979), Scandinavian Journal of Statistics 6(2).
    """
    corrected_R = np.full(p_R.shape, np.nan)
    tested = np.flatnonzero(~np.isnan(p_R))
    order = tested[np.argsort(p_R[tested], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    stepped = np.maximum.accumulate(factors * p_R[order])
    corrected_R[order] = np.minimum(stepped, 1)
    return corrected_R
