"""Means that are known by their standard errors: tests of two, and intervals."""

from __future__ import annotations

import math

from scipy.special import stdtr, stdtrit

MANY = 1e9  # degrees of freedom of an error that is known


def welch_p(
    difference: float, errors: tuple[float, float], counts: tuple[float, float]
) -> float:
    """Return the two-sided p-value of equal means by Welch's test.

    Args:
        difference: of the means, in their unit.
        errors: standard errors of both; 0 of a mean that is exact, not both.
        counts: how many values each is the mean of; infinity if its error is known.

    Examples:
        >>> round(welch_p(1.0, (0.3, 0.4), (10, 20)), 4)
        0.0551

    Reference:
        Welch (1947), doi:10.1093/biomet/34.1-2.28.
    """
    whole = sum(error**2 for error in errors)
    spread = sum(
        error**4 / (count - 1)
        for error, count in zip(errors, counts, strict=True)
        if error
    )
    freedom = min(whole**2 / spread, MANY) if spread else MANY
    return 2 * float(stdtr(freedom, -abs(difference) / math.sqrt(whole)))


def student_half(error: float, count: float, confidence: float) -> float:
    """Return half the width of Student's interval of a mean.

    Args:
        error: its standard error.
        count: values that it is the mean of, 2 or more; infinity if its error is known.
        confidence: of the interval.
    """
    freedom = min(count - 1, MANY)
    return float(stdtrit(freedom, (1 + confidence) / 2)) * error
