"""Ranks of labels over repetitions, and whether they say anything."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from curvflow.schemas.nodes import Array


@dataclass(frozen=True)
class Friedman:
    """Whether labels differ in rank; NaN for fewer than three labels or two rows.

    Attributes:
        chi2: the statistic.
        p: from chi2 with k - 1 degrees of freedom.
        p_iman_davenport: from F = (n - 1) chi2 / (n (k - 1) - chi2).
        kendall_w: chi2 / (n (k - 1)).
    """

    chi2: float = math.nan
    p: float = math.nan
    p_iman_davenport: float = math.nan
    kendall_w: float = math.nan


def ranks(values_NK: Array, *, lower_is_better: bool) -> Array:
    """Rank the labels of each repetition.

    Args:
        values_NK: a row per repetition, NaN for what shares the last ranks.
        lower_is_better: whether the least is first.

    Returns:
        Ranks from 1, shape (N, K); equal values share the mean of theirs.
    """
    signed_NK = values_NK if lower_is_better else -values_NK
    worst_NK = np.where(np.isnan(values_NK), np.inf, signed_NK)
    found: Array = stats.rankdata(worst_NK, axis=1)
    return found


def friedman(ranks_NK: Array) -> Friedman:
    """Test that no label is better than another.

    Args:
        ranks_NK: a row per repetition.

    Returns:
        The tests, with ties corrected for.

    Reference:
        Friedman (1937), doi:10.1080/01621459.1937.10503522; Iman and Davenport (1980),
        doi:10.1080/03610928008827904; Kendall and Babington Smith (1939),
        doi:10.1214/aoms/1177732186, for W.
    """
    count, labels = ranks_NK.shape
    if count < 2 or labels < 3 or np.ptp(ranks_NK, axis=1).max() == 0:
        return Friedman()
    found = stats.friedmanchisquare(*ranks_NK.T)
    chi2, most = float(found.statistic), count * (labels - 1)
    freedom = labels - 1, (labels - 1) * (count - 1)
    if chi2 > most * (1 - 1e-12):  # all repetitions agree
        return Friedman(chi2, float(found.pvalue), 0.0, 1.0)
    f = (count - 1) * chi2 / (most - chi2)
    p = float(stats.f.sf(f, *freedom))
    return Friedman(chi2, float(found.pvalue), p, chi2 / most)


def critical_difference(count: int, labels: int, confidence: float) -> float:
    """Return how far apart two mean ranks must be, all pairs being compared.

    Args:
        count: repetitions.
        labels: that are ranked.
        confidence: 1 less the share of families with a false difference.

    Returns:
        q sqrt(k (k + 1) / (6 n)), q being the quantile of the studentized range over
        sqrt(2); NaN for fewer than two labels or repetitions.

    Reference:
        Nemenyi (1963); Demsar (2006), Journal of Machine Learning Research 7, 1-30.
    """
    if count < 2 or labels < 2:
        return math.nan
    q = float(stats.studentized_range.ppf(confidence, labels, np.inf)) / math.sqrt(2)
    return q * math.sqrt(labels * (labels + 1) / (6 * count))
