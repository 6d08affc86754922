"""Learning rates from curvature: the best for a quadratic, the smallest that fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Acceleration = Literal["polyak", "nesterov", "nesterov_quadratic"]


def extremes(
    values_MK: Tensor, weights_MK: Tensor, bulk_above_M1: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the ends of the spectrum that rates are taken from.

    The Ritz value of the largest weight stands for the bulk near zero, and is left out
    if it weighs too much; so are those that are not positive.

    Args:
        values_MK: Ritz values.
        weights_MK: their weights, of sum 1; 0 where there is no value.
        bulk_above_M1: the weight above which the heaviest is left out.

    Returns:
        The smallest and the largest value left, (M, 1) each; NaN if none is.

    Reference:
        Granziol (2020), section 4.3.2; that negative ones are left out is added, as the
        rates are those of a convex quadratic.
    """
    heaviest_MK = weights_MK == weights_MK.amax(1, keepdim=True)
    is_bulk_MK = heaviest_MK & (weights_MK > bulk_above_M1)
    left_MK = (weights_MK > 0) & (values_MK > 0)
    rest_MK = left_MK & ~is_bulk_MK
    # A spectrum that is one point has nothing but its bulk.
    left_MK = torch.where(rest_MK.any(1, keepdim=True), rest_MK, left_MK)
    smallest_M1 = values_MK.masked_fill(~left_MK, torch.inf).amin(1, keepdim=True)
    largest_M1 = values_MK.masked_fill(~left_MK, -torch.inf).amax(1, keepdim=True)
    none_M1 = ~left_MK.any(1, keepdim=True)
    return (
        smallest_M1.masked_fill(none_M1, torch.nan),
        largest_M1.masked_fill(none_M1, torch.nan),
    )


def best_rates(
    smallest_M1: Tensor,
    largest_M1: Tensor,
    form: Acceleration,
    max_momentum_M1: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return learning rate and momentum for spectra within some bounds.

    A momentum beyond the largest allowed counts as a larger smallest eigenvalue, so
    that the rate stays one at which the iteration is stable.

    Args:
        smallest_M1: eigenvalues, positive.
        largest_M1: eigenvalues, not smaller.
        form: of the momentum.
        max_momentum_M1: below 1.

    Returns:
        Rates and momenta, (M, 1) each.

    Reference:
        Polyak (1964), doi:10.1016/0041-5553(64)90137-5; Nesterov (2004), Introductory
        Lectures on Convex Optimization, section 2.2; for quadratics Lessard, Recht and
        Packard (2016), arXiv:1408.3595, Proposition 1. Granziol (2020), eq. 4.3, prints
        other rates, at which the iteration need not converge.
    """
    if form == "nesterov_quadratic":
        root_M1 = 2 * (1 + max_momentum_M1) / (1 - max_momentum_M1)
        floor_M1 = largest_M1 * 3 / (root_M1.square() - 1)
        smallest_M1 = torch.maximum(smallest_M1, floor_M1)
        root_M1 = (3 * largest_M1 / smallest_M1 + 1).sqrt()
        return 4 / (3 * largest_M1 + smallest_M1), (root_M1 - 2) / (root_M1 + 2)
    power = 2 if form == "polyak" else 1
    most_M1 = max_momentum_M1.pow(1 / power)
    floor_M1 = largest_M1 * ((1 - most_M1) / (1 + most_M1)).square()
    smallest_M1 = torch.maximum(smallest_M1, floor_M1)
    small_M1, large_M1 = smallest_M1.sqrt(), largest_M1.sqrt()
    momentum_M1 = ((large_M1 - small_M1) / (large_M1 + small_M1)).pow(power)
    if form == "polyak":
        return 4 / (small_M1 + large_M1).square(), momentum_M1
    return 1 / largest_M1, momentum_M1


# From learning rates (M,) to the losses there, (M,).
LossesAt = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Critical:
    """Rates at which the losses of M models rise above those at no step.

    Attributes:
        rate: the smallest rate found to raise the loss, within the tolerance, (M,);
            NaN where none was found.
        converged: whether the rate is within the tolerance, (M,).
        passes: evaluations made, (M,).
    """

    rate: Tensor
    converged: Tensor
    passes: Tensor


def critical_rate(
    losses_at: LossesAt, start_M: Tensor, *, tol: float, max_passes: int
) -> Critical:
    """Bracket the rate at which the loss is that of no step, and halve the bracket.

    From the start the rate is doubled while the loss is lower than at 0, or halved
    while it is not; then the geometric mean of the bracket is tried. A rise between two
    rates tried, which has gone at the second, is not seen. A loss that is not finite
    counts as raised. No model's course depends on its siblings.

    Args:
        losses_at: losses of steps of some rates.
        start_M: first rates, positive.
        tol: relative length of the bracket that ends the search.
        max_passes: evaluations at most, that at no step not counted.

    Returns:
        The rates, with flags.

    Reference:
        Kalra et al. (2026), arXiv:2601.16979, who search along the step of the rule.
    """
    start_M = start_M.double()
    bound_M = losses_at(torch.zeros_like(start_M)).double()
    low_M, high_M = torch.zeros_like(start_M), torch.full_like(start_M, torch.inf)
    passes_M = torch.zeros_like(start_M, dtype=torch.int64)
    going_M = torch.isfinite(bound_M)
    for _ in range(max_passes):
        rate_M = _next(low_M, high_M, start_M)
        raised_M = ~(losses_at(rate_M).double() <= bound_M)
        high_M = torch.where(going_M & raised_M, rate_M, high_M)
        low_M = torch.where(going_M & ~raised_M, rate_M, low_M)
        passes_M += going_M
        going_M = going_M & ~(high_M <= (1 + tol) * low_M)
        if not going_M.any():
            break
    found_M = (high_M <= (1 + tol) * low_M) & torch.isfinite(bound_M)
    rate_M = torch.where(found_M, (low_M * high_M).sqrt(), torch.nan)
    return Critical(rate_M, found_M, passes_M)


def _next(low_M: Tensor, high_M: Tensor, start_M: Tensor) -> Tensor:
    """Return the rates to try: outwards until both bounds are known, then between."""
    first_M = torch.where(
        high_M.isinf() & (low_M == 0), start_M, (low_M * high_M).sqrt()
    )
    outwards_M = torch.where(low_M > 0, 2 * low_M, first_M)
    tried_M = torch.where(high_M.isinf(), outwards_M, first_M)
    return torch.where((low_M == 0) & high_M.isfinite(), high_M / 2, tried_M)
