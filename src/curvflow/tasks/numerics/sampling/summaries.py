"""The local learning coefficient by chains about one point, and how well known.

Letters: C chains; K draws of each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling.diagnostics import (
    ess_bulk,
    ess_tail,
    mcse_mean,
    r_hat,
)


@dataclass(frozen=True)
class Summary:
    """Estimate of the coefficient by the chains that did not fail.

    Attributes:
        llc_mean: nbeta (mean loss - loss at the weights); NaN if all failed.
        llc_std: standard deviation between the chains' estimates; NaN for one chain.
        llc_sem: standard error of `llc_mean`, from autocorrelated draws.
        llc_per_chain: estimate of each chain, NaN of one that failed, (C,).
        r_hat: of the losses.
        ess_bulk: effective number of draws, of the losses.
        ess_tail: the same for their tails.
        num_failed: chains that failed.
    """

    llc_mean: float
    llc_std: float
    llc_sem: float
    llc_per_chain: Tensor
    r_hat: float
    ess_bulk: float
    ess_tail: float
    num_failed: int


def summarise(
    losses_CK: Tensor, init_loss: float, nbeta: float, failed_at_C: Tensor
) -> Summary:
    """Estimate the local learning coefficient, nbeta (E L - L(w*)).

    Args:
        losses_CK: mean losses at the draws, at least 8 of each chain.
        init_loss: mean loss at the weights.
        nbeta: inverse temperature.
        failed_at_C: the step at which a chain failed, -1 if it did not.

    Returns:
        The estimate with its error, of the chains that did not fail.

    Reference:
        Lau et al. (2023), arXiv:2308.12108, equation 20.
    """
    failed_C = failed(losses_CK, failed_at_C)
    kept_1CK = losses_CK[~failed_C][None].double()
    llc_C = nbeta * (losses_CK.double().mean(1) - init_loss)
    llc_C = torch.where(failed_C, torch.nan, llc_C)
    left = int((~failed_C).sum())
    if not left:
        none = math.nan
        return Summary(none, none, none, llc_C, none, none, none, len(failed_C))
    return Summary(
        float(llc_C[~failed_C].mean()),
        float(llc_C[~failed_C].std()) if left > 1 else math.nan,
        nbeta * float(mcse_mean(kept_1CK)),
        llc_C,
        float(r_hat(kept_1CK)),
        float(ess_bulk(kept_1CK)),
        float(ess_tail(kept_1CK)),
        len(failed_C) - left,
    )


def failed(losses_CK: Tensor, failed_at_C: Tensor) -> Tensor:
    """Return which chains failed, (C,)."""
    return (failed_at_C >= 0) | ~losses_CK.isfinite().all(1)
