"""The smallest learning rate that raises the loss, by evaluations alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

# From learning rates (M,) to the losses there, (M,).
LossesAt = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Critical:
    """Where the losses of M models rise above what they are at no step.

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
