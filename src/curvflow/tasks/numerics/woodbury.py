"""Damped solves with a matrix that is known by few rows."""

from __future__ import annotations

import torch
from torch import Tensor

from curvflow.tasks.numerics.rows import Rows

# Where the solution is shorter than v / kappa by more than this, as much of the
# difference that it is of v and G'u is lost to rounding, and is computed once more.
CANCELLED = 1e4


def damped_solve(
    rows: Rows, vectors_MD: Tensor, alpha_M1: Tensor, least_M1: Tensor
) -> Tensor:
    """Return (F + kappa I)^-1 v for F = G'G, kappa = alpha / D max(tr F, least).

    Args:
        rows: those of G.
        vectors_MD: v of each model.
        alpha_M1: damping as a multiple of the mean eigenvalue, above zero.
        least_M1: bound of the trace from below.

    Returns:
        The solutions (M, D), computed and returned in double precision; NaN for a model
        whose damping is lost in rounding.

    Reference:
        Woodbury's identity: kappa (F + kappa I)^-1 v = v - G'(GG' + kappa I)^-1 G v.
    """
    vectors_MD = vectors_MD.double()
    gram_MRR = rows.gram()
    trace_M1 = gram_MRR.diagonal(dim1=1, dim2=2).sum(1, keepdim=True)
    kappa_M1 = alpha_M1 / rows.size * torch.maximum(trace_M1, least_M1)
    # Without checks, which would end the models beside one that has diverged.
    damped_MRR = gram_MRR + torch.diag_embed(kappa_M1.expand(-1, gram_MRR.shape[1]))
    factor_MRR, info_M = torch.linalg.cholesky_ex(damped_MRR)

    def solved(v_MD: Tensor) -> Tensor:
        within_MR1 = torch.cholesky_solve(rows.times(v_MD).unsqueeze(2), factor_MRR)
        along_MD = rows.combined(within_MR1.squeeze(2))
        return torch.sub(v_MD, along_MD, out=along_MD).div_(kappa_M1)

    found_MD = solved(vectors_MD)
    short_M1 = kappa_M1 * found_MD.norm(dim=1, keepdim=True) * CANCELLED
    is_cancelled_M1 = short_M1 < vectors_MD.norm(dim=1, keepdim=True)
    if is_cancelled_M1.any():
        product_MD = rows.combined(rows.times(found_MD)) + kappa_M1 * found_MD
        better_MD = found_MD + solved(vectors_MD - product_MD)
        found_MD = torch.where(is_cancelled_M1, better_MD, found_MD)
    return found_MD.masked_fill_(info_M.unsqueeze(1) > 0, torch.nan)
