"""Bootstrap intervals of a statistic: BCa or percentile."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy

from curvflow.schemas.nodes import Array

Limits = tuple[float, float]
# From samples, with the values along the keyword `axis`, to the estimate.
Statistic = Callable[..., Any]
NO_LIMITS: Limits = (math.nan, math.nan)


@dataclass(frozen=True)
class Resampling:
    """Settings of a bootstrap interval: its kind, number of resamples and seed."""

    kind: Literal["bca", "percentile"]
    num_resamples: int
    seed: int


def resampled_interval(
    samples: tuple[Array, ...],
    statistic: Statistic,
    confidence: float,
    resampling: Resampling,
    *,
    paired: bool = False,
) -> Limits:
    """Return a bootstrap interval for a statistic of one or two samples.

    Args:
        samples: finite values, equally many in each if they are paired.
        statistic: the estimator, along an axis that it takes.
        confidence: coverage of the interval.
        resampling: kind, number of resamples and seed.
        paired: draw values with equal indices together.

    Returns:
        Its limits; both equal to the estimate where values have no spread, NaN for
        fewer than two values, and where the statistic of a resample or of a
        leave-one-out sample is undefined.

    Reference:
        Efron (1987), doi:10.2307/2289144.
    """
    if min(map(len, samples)) < 2:
        return NO_LIMITS
    if all(np.ptp(sample) == 0 for sample in samples):
        estimate = float(statistic(*samples, axis=0))
        return estimate, estimate
    with warnings.catch_warnings():  # NaN limits report it
        warnings.simplefilter("ignore", RuntimeWarning)
        interval = scipy.stats.bootstrap(
            samples,
            statistic,
            n_resamples=resampling.num_resamples,
            confidence_level=confidence,
            method="BCa" if resampling.kind == "bca" else "percentile",
            vectorized=True,
            paired=paired,
            random_state=np.random.default_rng(resampling.seed),
        )
    low, high = interval.confidence_interval
    return float(low), float(high)
