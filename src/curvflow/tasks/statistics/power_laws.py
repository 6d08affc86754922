"""Power laws y = prefactor x^exponent by least squares, and their crossovers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from curvflow.schemas.nodes import Array
from curvflow.tasks.statistics.bootstrap import NO_LIMITS, Limits

UNBOUNDED: Limits = (0.0, math.inf)  # of a positive number


@dataclass(frozen=True)
class PowerLaw:
    """A line fitted to logarithms; NaN where there are too few points.

    Attributes:
        exponent: slope of ln y on ln x.
        intercept: ln y at x = 1.
        covariance: covariance of intercept and slope, from the residuals, shape (2, 2).
        freedom: degrees of freedom, n - 2.
        r_squared: explained fraction of the variance of ln y.
        residual_sd: standard deviation of the residuals.
        p_curved: p of the t-test for a quadratic term in ln x.
    """

    exponent: float
    intercept: float
    covariance: Array
    freedom: int
    r_squared: float
    residual_sd: float
    p_curved: float

    @property
    def sem(self) -> float:
        """Standard error of the exponent."""
        return math.sqrt(self.covariance[1, 1])

    def limits(self, confidence: float) -> Limits:
        """Return Student's interval for the exponent."""
        half = self._t(confidence) * self.sem
        return self.exponent - half, self.exponent + half

    def at(self, x: Array) -> Array:
        """Return the law's y at x."""
        with np.errstate(over="ignore"):
            value: Array = np.exp(self.intercept + self.exponent * np.log(x))
        return value

    def band(self, x: Array, confidence: float) -> tuple[Array, Array]:
        """Return Student's pointwise interval for the law's y at x."""
        rows = np.stack([np.ones_like(x), np.log(x)])
        half = self._t(confidence) * np.sqrt(
            np.einsum("ix,ij,jx->x", rows, self.covariance, rows)
        )
        with np.errstate(over="ignore"):
            return self.at(x) * np.exp(-half), self.at(x) * np.exp(half)

    def _t(self, confidence: float) -> float:
        if self.freedom < 1:
            return math.nan
        return float(stdtrit(self.freedom, (1 + confidence) / 2))


def power_law(x_N: Array, y_N: Array) -> PowerLaw:
    """Fit a power law to positive points.

    Args:
        x_N: positive numbers.
        y_N: positive numbers.

    Returns:
        The law; its covariance is NaN for fewer than three points.
    """
    u_N, v_N = np.log(x_N), np.log(y_N)
    lowest = v_N.min(initial=math.inf)
    v_N = v_N - lowest  # so that equal y have exactly no slope
    unknown = np.full((2, 2), math.nan)
    if len(u_N) < 2 or np.ptp(u_N) == 0:
        return PowerLaw(math.nan, math.nan, unknown, 0, math.nan, math.nan, math.nan)
    # Centred, so that slope and height are uncorrelated.
    centre, from_centre = u_N.mean(), u_N - u_N.mean()
    spread = float((from_centre**2).sum())
    slope = float((from_centre * v_N).sum() / spread)
    residuals = v_N - v_N.mean() - slope * from_centre
    residual_ss, total_ss = (
        float((residuals**2).sum()),
        float(((v_N - v_N.mean()) ** 2).sum()),
    )
    freedom = len(u_N) - 2
    covariance = unknown
    if freedom:
        both = np.array([[1 / len(u_N) + centre**2 / spread, -centre / spread]] * 2)
        both[1] = -centre / spread, 1 / spread
        covariance = residual_ss / freedom * both
    return PowerLaw(
        slope,
        float(lowest + v_N.mean() - slope * centre),
        covariance,
        freedom,
        1 - residual_ss / total_ss if total_ss > 0 else math.nan,
        math.sqrt(residual_ss / freedom) if freedom else math.nan,
        _p_curved(from_centre, v_N),
    )


def _p_curved(u_N: Array, v_N: Array) -> float:
    freedom = len(u_N) - 3
    if freedom < 1 or len(np.unique(u_N)) < 3:
        return math.nan
    design = np.stack([np.ones_like(u_N), u_N, u_N**2], axis=1)
    coefficients, *_ = np.linalg.lstsq(design, v_N, rcond=None)
    residuals = v_N - design @ coefficients
    variance = float((residuals**2).sum()) / freedom
    size = max(1.0, float(np.abs(v_N).max()))
    if variance <= (64 * np.finfo(np.float64).eps * size) ** 2:  # nothing but rounding
        return math.nan
    error = math.sqrt(variance * np.linalg.inv(design.T @ design)[2, 2])
    return float(2 * stdtr(freedom, -abs(coefficients[2] / error)))


def crossover(
    first: PowerLaw, second: PowerLaw, confidence: float
) -> tuple[float, Limits]:
    """Return the crossover of two laws, ln x = (b2 - b1) / (a1 - a2), with limits.

    Args:
        first: first law.
        second: second law, of other points.
        confidence: coverage of the interval, with the smaller degrees of freedom.

    Returns:
        x, NaN for equal exponents, and Fieller's limits: 0 and infinity where the
        exponents do not differ significantly, so that the interval is unbounded, NaN
        where they have no standard error.

    Reference:
        Fieller (1954), doi:10.1111/j.2517-6161.1954.tb00159.x.
    """
    above, below = second.intercept - first.intercept, first.exponent - second.exponent
    if not abs(below) > 0 or not math.isfinite(above):
        return math.nan, NO_LIMITS
    v = first.covariance + second.covariance
    freedom = min(first.freedom, second.freedom)
    ratio = above / below
    if freedom < 1:
        return _exp(ratio), NO_LIMITS
    square = float(stdtrit(freedom, (1 + confidence) / 2)) ** 2
    # cov(above, below) = -cov(b, a), as above = b2 - b1 and below = a1 - a2.
    a = below**2 - square * v[1, 1]
    b = above * below + square * v[0, 1]
    c = above**2 - square * v[0, 0]
    if not a > 0:
        return _exp(ratio), UNBOUNDED
    root = math.sqrt(max(b**2 - a * c, 0.0))
    return _exp(ratio), (_exp((b - root) / a), _exp((b + root) / a))


def resampled_laws(
    repetitions: Sequence[int],
    x_N: Array,
    y_N: Array,
    weights_RS: Array,
) -> tuple[Array, Array]:
    """Fit the law to resampled repetitions.

    Args:
        repetitions: repetition of each point, 0 .. S - 1.
        x_N: positive numbers.
        y_N: positive numbers.
        weights_RS: number of draws of each repetition.

    Returns:
        Exponent and intercept of each resample, shape (R,); NaN where all x are equal.
    """
    if not len(x_N):
        nothing = np.full(len(weights_RS), math.nan)
        return nothing, nothing
    u_N, v_N = np.log(x_N), np.log(y_N)
    centre = u_N.mean()
    u_N = u_N - centre
    sums = np.zeros((weights_RS.shape[1], 5))
    terms = np.stack([np.ones_like(u_N), u_N, v_N, u_N**2, u_N * v_N], axis=1)
    np.add.at(sums, np.array(repetitions, dtype=np.intp), terms)
    n, u, v, uu, uv = (weights_RS @ sums).T
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = uu - u**2 / n
        varies = spread > 1e-12 * (1 + float((u_N**2).sum()))
        slope = np.where(varies, (uv - u * v / n) / spread, math.nan)
        return slope, (v - slope * u) / n - slope * centre


def repetition_counts(num_repetitions: int, num_resamples: int, seed: int) -> Array:
    """Resample repetitions; return the number of draws of each, shape (R, S)."""
    share = np.full(num_repetitions, 1 / num_repetitions)
    random = np.random.default_rng(seed)
    counts: Array = random.multinomial(num_repetitions, share, num_resamples)
    return counts.astype(np.float64)


def resampled_crossover(
    first: tuple[Array, Array], second: tuple[Array, Array], confidence: float
) -> Limits:
    """Return the percentile interval of the crossover of resampled laws.

    Args:
        first: exponents and intercepts of the first law, shape (R,) each.
        second: those of the second, of the same resamples.
        confidence: coverage of the interval.

    Returns:
        Its limits; 0 and infinity where the interval of the difference of exponents
        contains 0, since the laws may then be parallel.
    """
    below_R, above_R = first[0] - second[0], second[1] - first[1]
    low, high = percentile_interval(below_R, confidence)
    if low <= 0 <= high:
        return UNBOUNDED
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        low, high = percentile_interval(above_R / below_R, confidence)
    return _exp(low), _exp(high)


def percentile_interval(values_R: Array, confidence: float) -> Limits:
    """Return the percentile interval of resampled values without NaN."""
    values_R = values_R[np.isfinite(values_R)]
    if not len(values_R):
        return NO_LIMITS
    tail = (1 - confidence) / 2
    low, high = np.quantile(values_R, [tail, 1 - tail])
    return float(low), float(high)


def _exp(value: float) -> float:
    return math.inf if value >= 700 else math.exp(value)
