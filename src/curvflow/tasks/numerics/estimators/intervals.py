"""Intervals of 95 % for means of draws."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.special import gammaincinv, stdtrit
from torch import Tensor

from curvflow.tasks.numerics.estimators.forms import MANY

# From means, standard errors and their degrees of freedom to the ends.
Interval = Callable[[Tensor, Tensor, Tensor | float], tuple[Tensor, Tensor]]

LOW, HIGH = 0.025, 0.975
NORMAL = 1.959964

# Skewness of a law, to that of 10 to 30 of its draws: 1.7 to 1.2 of exponential ones.
SHOWN = 1.5


def student_interval(
    mean: Tensor, sem: Tensor, freedom: Tensor | float
) -> tuple[Tensor, Tensor]:
    """Return Student's interval of 95 %.

    Args:
        mean: of any shape.
        sem: its standard error.
        freedom: degrees of freedom of the standard error.

    Returns:
        Lower and upper ends.

    Examples:
        >>> from curvflow.tasks.numerics import student_interval
        >>> mean, sem = torch.tensor(1.0).double(), torch.tensor(0.5).double()
        >>> [round(end.item(), 2) for end in student_interval(mean, sem, freedom=9)]
        [-0.13, 2.13]
    """
    half = torch.as_tensor(stdtrit(np.asarray(freedom), HIGH)) * sem
    return mean - half, mean + half


def positive_interval(
    mean: Tensor, sem: Tensor, freedom: Tensor | float
) -> tuple[Tensor, Tensor]:
    """Return an interval of 95 % for the mean of positive, skewed draws.

    Sums of squares of normal numbers, as z.Az of a positive A and ||Az||^2 are, have
    nearly the law of a chi-squared number with nu degrees of freedom, scaled to the
    same mean and variance: nu = 2 (mean / sem)^2. The error is widened first, as
    Student does, for it is estimated.

    Args:
        mean: of any shape; where it is not above zero, the interval is Student's.
        sem: its standard error.
        freedom: degrees of freedom of the standard error.

    Returns:
        Lower and upper ends; the upper one may be infinite.

    Examples:
        >>> from curvflow.tasks.numerics import positive_interval
        >>> mean, sem = torch.tensor(1.0).double(), torch.tensor(0.5).double()
        >>> [round(end.item(), 2) for end in positive_interval(mean, sem, freedom=9)]
        [0.42, 4.84]

    Reference:
        Satterthwaite (1946), doi:10.2307/3002019; Box (1954),
        doi:10.1214/aoms/1177728786.
    """
    low, high = student_interval(mean, sem, freedom)
    wide = (high - mean) / NORMAL
    nu = (2 * (mean / wide).square()).numpy()
    is_skewed = (mean > 0).numpy() & (nu < MANY)
    safe = np.where(is_skewed, nu, 1.0)
    with np.errstate(divide="ignore", over="ignore"):
        ends = [
            mean * torch.as_tensor(safe / (2 * gammaincinv(safe / 2, tail)))
            for tail in (HIGH, LOW)
        ]
    chosen = torch.as_tensor(is_skewed)
    return torch.where(chosen, ends[0], low), torch.where(chosen, ends[1], high)


def wider_interval(
    mean: Tensor, sem: Tensor, freedom: Tensor | float
) -> tuple[Tensor, Tensor]:
    """Return the interval of 95 % that holds both Student's and the skewed one.

    For draws with a positive mean that are skewed, or noisy about zero, or both.

    Args:
        mean: of any shape.
        sem: its standard error.
        freedom: degrees of freedom of the standard error.

    Returns:
        Lower and upper ends; the upper one may be infinite.

    Examples:
        >>> from curvflow.tasks.numerics import wider_interval
        >>> mean, sem = torch.tensor(1.0).double(), torch.tensor(0.5).double()
        >>> [round(end.item(), 2) for end in wider_interval(mean, sem, freedom=9)]
        [-0.13, 4.84]
    """
    lows, highs = zip(
        student_interval(mean, sem, freedom),
        positive_interval(mean, sem, freedom),
        strict=True,
    )
    return torch.minimum(*lows), torch.maximum(*highs)


def leaning_interval(
    mean: Tensor, sem: Tensor, freedom: Tensor | float, skewness: Tensor
) -> tuple[Tensor, Tensor]:
    """Return Student's interval of 95 %, wider at the end that skewness is on.

    A mean of forms has nearly the law of a chi-squared number, scaled and shifted to
    the same mean, variance and skewness: of nu = 8 / skewness^2 degrees of freedom.
    What it is above its start is taken for its scale, for draws that are low state low
    errors. So far as it goes beyond Student's end it is taken.

    Args:
        mean: of any shape.
        sem: its standard error.
        freedom: degrees of freedom of the standard error.
        skewness: of the mean; where it is NaN or zero, the interval is Student's.

    Returns:
        Lower and upper ends; the one on the side of the skewness may be infinite.

    Examples:
        >>> from curvflow.tasks.numerics.estimators.intervals import leaning_interval
        >>> mean, sem = torch.tensor(1.0).double(), torch.tensor(0.5).double()
        >>> skewness = torch.tensor(1.0).double()
        >>> ends = leaning_interval(mean, sem, 9, skewness)
        >>> [round(end.item(), 2) for end in ends]
        [-0.13, 4.08]

    Reference:
        Imhof (1961), doi:10.1093/biomet/48.3-4.419, for the three moments.
    """
    low, high = student_interval(mean, sem, freedom)
    nu = (8 / skewness.square()).numpy()
    is_skewed = np.isfinite(nu) & (nu < MANY) & (nu > 0)
    safe = np.where(is_skewed, nu, 1.0)
    start = (high - mean) / NORMAL * torch.as_tensor(np.sqrt(safe / 2))
    with np.errstate(divide="ignore", over="ignore"):
        far = torch.as_tensor(safe / (2 * gammaincinv(safe / 2, LOW)) - 1)
    reach = torch.where(torch.as_tensor(is_skewed) & (start > 0), start * far, 0.0)
    return (
        torch.where(skewness < 0, torch.minimum(low, mean - reach), low),
        torch.where(skewness > 0, torch.maximum(high, mean + reach), high),
    )


def skewness_of_mean(draws: Tensor) -> Tensor:
    """Return the skewness of the mean of S draws, along the last dimension.

    That of the draws, by unbiased moments, divided by the root of S; zero where draws
    are equal, and of two, which are never skewed.

    Examples:
        >>> from curvflow.tasks.numerics.estimators.intervals import skewness_of_mean
        >>> skewness_of_mean(torch.tensor([0.0, 0.0, 0.0, 1.0]).double()).item()
        1.0
    """
    count = draws.shape[-1]
    away = draws - draws.mean(-1, keepdim=True)
    spread = away.square().sum(-1) / (count - 1)
    third = away.pow(3).sum(-1) * count / ((count - 1) * max(count - 2, 1))
    known = torch.where(spread > 0, spread, 1.0)
    return torch.where(spread > 0, third / known**1.5 / count**0.5, 0.0)


def interval_of_draws(draws: Tensor, sem: Tensor) -> tuple[Tensor, Tensor]:
    """Return an interval of 95 % for the mean of S draws, as their skewness leans.

    Args:
        draws: along the last dimension.
        sem: standard error of their mean, by their spread.

    Returns:
        Lower and upper ends; the one on the side of the skewness may be infinite.

    Examples:
        >>> from curvflow.tasks.numerics.estimators.intervals import interval_of_draws
        >>> draws = torch.tensor([1.0, 2.0, 1.0, 4.0]).double()
        >>> ends = interval_of_draws(draws, draws.std() / 2)
        >>> [round(end.item(), 1) for end in ends]
        [-0.3, 8.7]
    """
    skewness = SHOWN * skewness_of_mean(draws)
    return leaning_interval(draws.mean(-1), sem, draws.shape[-1] - 1.0, skewness)


def interval_of_squares(
    mean: Tensor, sem: Tensor, freedom: Tensor | float, draws: Tensor
) -> tuple[Tensor, Tensor]:
    """Return an interval of 95 % for the mean of squares that are noisy.

    The one that holds Student's and that of positive draws, further up where the draws
    are more skewed than these: by their skewness, of which few draws show a part.

    Args:
        mean: of any shape.
        sem: its standard error.
        freedom: degrees of freedom of the standard error.
        draws: that it is the mean of, along the last dimension.

    Returns:
        Lower and upper ends, not below zero; the upper one may be infinite.

    Examples:
        >>> from curvflow.tasks.numerics.estimators.intervals import interval_of_squares
        >>> draws = torch.tensor([1.0, 2.0, 1.0, 4.0]).double()
        >>> mean, sem = draws.mean(), draws.std() / 2
        >>> [round(end.item(), 1) for end in interval_of_squares(mean, sem, 3, draws)]
        [0.0, 9.6]
    """
    low, high = wider_interval(mean, sem, freedom)
    skewness = SHOWN * skewness_of_mean(draws)
    _, far = leaning_interval(mean, sem, freedom, skewness)
    return low.clamp_min(0), torch.maximum(high, far)
