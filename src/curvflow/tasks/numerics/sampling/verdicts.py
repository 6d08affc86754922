"""Whether chains about one point can be trusted.

Letters: C chains; K draws of each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from curvflow.tasks.numerics.sampling.faults import (
    Chains,
    drifting,
    escaped,
    negative,
    too_large,
    well,
)
from curvflow.tasks.numerics.sampling.summaries import Summary, failed


@dataclass(frozen=True)
class Verdict:
    """Whether an estimate can be used.

    Attributes:
        name: `converged`, `drifting`, `escaped`, `negative`, `step too large` or
            `failed`.
        reason: why, in words, with numbers, and what to do about it.
    """

    name: str
    reason: str


def judge(
    summary: Summary,
    losses_CK: Tensor,
    init_loss: float,
    nbeta: float,
    localization: float,
    distances_CK: Tensor,
    acceptance_C: Tensor,
    failed_at_C: Tensor,
    num_parameters: int,
    bias: float = 0.0,
    slow_error: float = math.nan,
    wavers_by: str = "",
) -> Verdict:
    """Say whether the chains of one member can be trusted, and if not, why.

    The first of these that holds is the verdict: a chain `failed`; its `step too
    large`, for then nothing else means much; `negative`, it finds lower losses than the
    weights have; `escaped`, it is not held near them; `drifting`, it is not stationary
    or too short to tell; else `converged`.

    Args:
        summary: the estimate by these chains.
        losses_CK: mean losses at the draws, at least 8 of each chain.
        init_loss: mean loss at the weights.
        nbeta: inverse temperature.
        localization: gamma.
        distances_CK: of the draws from the weights.
        acceptance_C: mean Metropolis acceptance of each chain; NaN if not measured.
        failed_at_C: the step at which a chain failed, -1 if it did not.
        num_parameters: how many move, d.
        bias: relative excess of the estimate that finite steps and batches are
            predicted to cause; 0 of a sampler that accepts or rejects.
        slow_error: what directions too slow for the chains are predicted to leave of
            the estimate; NaN if the curvature was not measured.
        wavers_by: `lr` or `localization`, where trials that varied it say that it is
            on no plateau; else nothing.

    Returns:
        The verdict and its reason.
    """
    failed_C = failed(losses_CK, failed_at_C)
    if failed_C.any():
        return _failure(failed_C, failed_at_C)
    chains = Chains(
        losses_CK.double(),
        distances_CK.double(),
        acceptance_C.double(),
        init_loss,
        nbeta,
        localization,
        num_parameters,
        bias,
        slow_error,
        wavers_by,
        summary,
    )
    tests = {
        "step too large": too_large,
        "negative": negative,
        "escaped": escaped,
        "drifting": drifting,
    }
    for name, test in tests.items():
        if reason := test(chains):
            return Verdict(name, reason)
    return Verdict("converged", well(chains))


def _failure(failed_C: Tensor, failed_at_C: Tensor) -> Verdict:
    steps = [str(int(at)) for at in failed_at_C[failed_C] if at >= 0]
    where = f", at step {', '.join(steps)}" if steps else ""
    left = "there is no estimate" if failed_C.all() else "the estimate is of the others"
    return Verdict(
        "failed",
        f"{int(failed_C.sum())} of {len(failed_C)} chains left the finite numbers"
        f"{where}; {left}. Lower lr.",
    )
