"""Power laws y = prefactor x^exponent by least squares of logarithms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from curvflow.schemas.nodes import Array
from curvflow.tasks.statistics.bootstrap import NOWHERE, Limits

EVERYWHERE: Limits = (0.0, math.inf)  # of a positive number that may be any


@dataclass(frozen=True)
class PowerLaw:
    """A straight line through logarithms; NaN where there are too few points.

    Attributes:
        exponent: slope of ln y on ln x.
        intercept: ln y at x = 1.
        covariance: of intercept and slope, from the residuals, shape (2, 2).
        freedom: n - 2.
        r_squared: share of the variance of ln y explained.
        residual_sd: standard deviation of the residuals.
        p_curved: of the t-test for a square of ln x.
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
        """Return y of the law."""
        with np.errstate(over="ignore"):
            found: Array = np.exp(self.intercept + self.exponent * np.log(x))
        return found

    def band(self, x: Array, confidence: float) -> tuple[Array, Array]:
        """Return Student's interval for the law's y at x, apart at each x."""
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
    # About the mean, where slope and height are independent.
    centre, from_centre = u_N.mean(), u_N - u_N.mean()
    spread = float((from_centre**2).sum())
    slope = float((from_centre * v_N).sum() / spread)
    residuals = v_N - v_N.mean() - slope * from_centre
    left, total = float((residuals**2).sum()), float(((v_N - v_N.mean()) ** 2).sum())
    freedom = len(u_N) - 2
    covariance = unknown
    if freedom:
        both = np.array([[1 / len(u_N) + centre**2 / spread, -centre / spread]] * 2)
        both[1] = -centre / spread, 1 / spread
        covariance = left / freedom * both
    return PowerLaw(
        slope,
        float(lowest + v_N.mean() - slope * centre),
        covariance,
        freedom,
        1 - left / total if total > 0 else math.nan,
        math.sqrt(left / freedom) if freedom else math.nan,
        _p_curved(from_centre, v_N),
    )


def _p_curved(u_N: Array, v_N: Array) -> float:
    freedom = len(u_N) - 3
    if freedom < 1 or len(np.unique(u_N)) < 3:
        return math.nan
    design = np.stack([np.ones_like(u_N), u_N, u_N**2], axis=1)
    found, *_ = np.linalg.lstsq(design, v_N, rcond=None)
    residuals = v_N - design @ found
    variance = float((residuals**2).sum()) / freedom
    size = max(1.0, float(np.abs(v_N).max()))
    if variance <= (64 * np.finfo(np.float64).eps * size) ** 2:  # nothing but rounding
        return math.nan
    error = math.sqrt(variance * np.linalg.inv(design.T @ design)[2, 2])
    return float(2 * stdtr(freedom, -abs(found[2] / error)))


def crossover(
    one: PowerLaw, other: PowerLaw, confidence: float
) -> tuple[float, Limits]:
    """Return where two laws cross, ln x = (b2 - b1) / (a1 - a2), with its interval.

    Args:
        one: a law.
        other: another, of other points.
        confidence: coverage of the interval; degrees of freedom are the lesser ones.

    Returns:
        x, NaN for equal exponents, and Fieller's limits: 0 and infinity where the
        exponents are not told apart and the interval therefore has no end, NaN where
        they have no error.

    Reference:
        Fieller (1954), doi:10.1111/j.2517-6161.1954.tb00159.x.
    """
    above, below = other.intercept - one.intercept, one.exponent - other.exponent
    if not abs(below) > 0 or not math.isfinite(above):
        return math.nan, NOWHERE
    v = one.covariance + other.covariance
    freedom = min(one.freedom, other.freedom)
    ratio = above / below
    if freedom < 1:
        return _exp(ratio), NOWHERE
    square = float(stdtrit(freedom, (1 + confidence) / 2)) ** 2
    # Of above = b2 - b1 and below = a1 - a2 the covariance is -cov(b, a).
    a = below**2 - square * v[1, 1]
    b = above * below + square * v[0, 1]
    c = above**2 - square * v[0, 0]
    if not a > 0:
        return _exp(ratio), EVERYWHERE
    root = math.sqrt(max(b**2 - a * c, 0.0))
    return _exp(ratio), (_exp((b - root) / a), _exp((b + root) / a))


def resampled_laws(
    places: Sequence[int],
    x_N: Array,
    y_N: Array,
    weights_RS: Array,
) -> tuple[Array, Array]:
    """Fit the law to repetitions drawn anew, by how often each is drawn.

    Args:
        places: repetition of each point, 0 .. S - 1.
        x_N: positive numbers.
        y_N: positive numbers.
        weights_RS: how often each repetition is drawn.

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
    np.add.at(sums, np.array(places, dtype=np.intp), terms)
    n, u, v, uu, uv = (weights_RS @ sums).T
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = uu - u**2 / n
        varies = spread > 1e-12 * (1 + float((u_N**2).sum()))
        slope = np.where(varies, (uv - u * v / n) / spread, math.nan)
        return slope, (v - slope * u) / n - slope * centre


def draws(num_repetitions: int, num_resamples: int, seed: int) -> Array:
    """Draw repetitions anew; return how often each is drawn, shape (R, S)."""
    share = np.full(num_repetitions, 1 / num_repetitions)
    random = np.random.default_rng(seed)
    counts: Array = random.multinomial(num_repetitions, share, num_resamples)
    return counts.astype(np.float64)


def resampled_crossover(
    one: tuple[Array, Array], other: tuple[Array, Array], confidence: float
) -> Limits:
    """Return the percentile interval of where resampled laws cross.

    Args:
        one: exponents and intercepts of a law, shape (R,) each.
        other: those of another, of the same resamples.
        confidence: coverage of the interval.

    Returns:
        Its limits; 0 and infinity where the interval of the difference of exponents
        holds 0, for then the laws may be parallel, and cross anywhere or nowhere.
    """
    below_R, above_R = one[0] - other[0], other[1] - one[1]
    low, high = percentiles(below_R, confidence)
    if low <= 0 <= high:
        return EVERYWHERE
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        low, high = percentiles(above_R / below_R, confidence)
    return _exp(low), _exp(high)


def percentiles(found_R: Array, confidence: float) -> Limits:
    """Return the percentile interval of what resamples gave, NaN left out."""
    found_R = found_R[np.isfinite(found_R)]
    if not len(found_R):
        return NOWHERE
    tail = (1 - confidence) / 2
    low, high = np.quantile(found_R, [tail, 1 - tail])
    return float(low), float(high)


def _exp(value: float) -> float:
    return math.inf if value >= 700 else math.exp(value)
