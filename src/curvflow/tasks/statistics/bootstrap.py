"""Intervals by the bootstrap: draw from the values again and again."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import stats

from curvflow.schemas.nodes import Array

Limits = tuple[float, float]
# From samples, the values along the keyword `axis`, to what is estimated of them.
Statistic = Callable[..., Any]
NOWHERE: Limits = (math.nan, math.nan)


@dataclass(frozen=True)
class Resampling:
    """How an interval is found by the bootstrap."""

    kind: Literal["bca", "percentile"]
    num_resamples: int
    seed: int


def resampled_interval(
    samples: tuple[Array, ...],
    statistic: Statistic,
    confidence: float,
    how: Resampling,
    *,
    paired: bool = False,
) -> Limits:
    """Return an interval for a statistic of one or two samples.

    Args:
        samples: finite values, as many in each if they are paired.
        statistic: what is estimated, along an axis that it is given.
        confidence: coverage of the interval.
        how: kind, number of samples and seed.
        paired: whether values of equal place are drawn together.

    Returns:
        Its limits; both the estimate where values have no spread, NaN of fewer than
        two, and where a resample or a value left out has no such statistic.

    Reference:
        Efron (1987), doi:10.2307/2289144.
    """
    if min(map(len, samples)) < 2:
        return NOWHERE
    if all(np.ptp(sample) == 0 for sample in samples):
        found = float(statistic(*samples, axis=0))
        return found, found
    with warnings.catch_warnings():  # NaN says as much
        warnings.simplefilter("ignore", RuntimeWarning)
        found = stats.bootstrap(
            samples,
            statistic,
            n_resamples=how.num_resamples,
            confidence_level=confidence,
            method="BCa" if how.kind == "bca" else "percentile",
            vectorized=True,
            paired=paired,
            random_state=np.random.default_rng(how.seed),
        )
    low, high = found.confidence_interval
    return float(low), float(high)
