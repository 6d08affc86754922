"""Means that are known by their standard errors: a test of two."""

from __future__ import annotations

import math

from scipy.special import stdtr, stdtridf, stdtrit

MANY = 1e9  # degrees of freedom of an error that is known


def welch_p(
    difference: float, errors: tuple[float, float], freedoms: tuple[float, float]
) -> float:
    """Return the two-sided p-value of equal means by Welch's test.

    Args:
        difference: of the means, in their unit.
        errors: standard errors of both; 0 of a mean that is exact, not both.
        freedoms: degrees of freedom of both errors, values less one; infinity of one
            that is known.

    Examples:
        >>> round(welch_p(1.0, (0.3, 0.4), (9, 19)), 4)
        0.0554

    Reference:
        Welch (1947), doi:10.1093/biomet/34.1-2.28.
    """
    whole = math.hypot(*errors)
    spread = sum(
        (error / whole) ** 4 / freedom
        for error, freedom in zip(errors, freedoms, strict=True)
        if error
    )
    freedom = min(1 / spread, MANY) if spread else MANY
    return 2 * float(stdtr(freedom, -abs(difference / whole)))


def cautious_p(
    difference: float, errors: tuple[float, float], freedoms: tuple[float, float]
) -> float:
    """Return the p-value of equal means by Student's law of the fewer values.

    It is never too small for normal values, where that of Welch's test is of few:
    below 0.05 in up to one case of nine of two values and ten.

    Args:
        difference: of the means, in their unit.
        errors: standard errors of both, not both 0.
        freedoms: degrees of freedom of both errors.

    Examples:
        >>> round(cautious_p(1.0, (0.3, 0.4), (9, 19)), 4)
        0.0766

    Reference:
        Mickey and Brown (1966), Annals of Mathematical Statistics 37(3).
    """
    freedom = min(*freedoms, MANY)
    return 2 * float(stdtr(freedom, -abs(difference / math.hypot(*errors))))


def student(freedom: float, confidence: float = 0.95) -> float:
    """Return half of Student's interval in standard errors.

    Args:
        freedom: degrees of freedom.
        confidence: of the interval.

    Examples:
        >>> round(student(1), 1), round(student(9), 2)
        (12.7, 2.26)
    """
    return float(stdtrit(min(freedom, MANY), (1 + confidence) / 2))


def freedom_of(half: float, error: float, confidence: float = 0.95) -> float:
    """Return the degrees of freedom of Student's interval; infinity if it is normal.

    Args:
        half: half of its width.
        error: the standard error.
        confidence: of the interval.
    """
    if not (error > 0 and half > error * student(MANY, confidence) * (1 + 1e-6)):
        return math.inf
    return max(1.0, float(stdtridf((1 + confidence) / 2, half / error)))
