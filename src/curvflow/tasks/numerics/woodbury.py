"""Damped solves with a matrix that is known by few rows."""

from __future__ import annotations

import torch
from torch import Tensor


def damped_solve(
    rows_MRD: Tensor, vectors_MD: Tensor, alpha_M1: Tensor, least_M1: Tensor
) -> Tensor:
    """Return (F + kappa I)^-1 v for F = G'G, kappa = alpha / D max(tr F, least).

    Args:
        rows_MRD: rows of G.
        vectors_MD: v of each model.
        alpha_M1: damping as a multiple of the mean eigenvalue, above zero.
        least_M1: bound of the trace from below.

    Returns:
        The solutions (M, D), computed and returned in double precision; NaN for a model
        whose damping is lost in rounding.

    Reference:
        Woodbury's identity: kappa (F + kappa I)^-1 v = v - G'(GG' + kappa I)^-1 G v.
    """
    rows_MRD, vectors_MD = rows_MRD.double(), vectors_MD.double()
    gram_MRR = rows_MRD @ rows_MRD.mT
    trace_M1 = gram_MRR.diagonal(dim1=1, dim2=2).sum(1, keepdim=True)
    kappa_M1 = alpha_M1 / rows_MRD.shape[2] * torch.maximum(trace_M1, least_M1)
    # Without checks, which would end the models beside one that has diverged.
    damped_MRR = gram_MRR + torch.diag_embed(kappa_M1.expand(-1, rows_MRD.shape[1]))
    factor_MRR, info_M = torch.linalg.cholesky_ex(damped_MRR)

    def times_rows(within_MR1: Tensor) -> Tensor:
        return (rows_MRD.mT @ within_MR1).squeeze(2)

    def solved(v_MD: Tensor) -> Tensor:
        within_MR1 = torch.cholesky_solve(rows_MRD @ v_MD.unsqueeze(2), factor_MRR)
        return (v_MD - times_rows(within_MR1)) / kappa_M1

    found_MD = solved(vectors_MD)
    # Once more for what is left: little damping leaves little of the difference.
    product_MD = times_rows(rows_MRD @ found_MD.unsqueeze(2)) + kappa_M1 * found_MD
    found_MD = found_MD + solved(vectors_MD - product_MD)
    return found_MD.masked_fill(info_M.unsqueeze(1) > 0, torch.nan)
