"""Pivoted Cholesky: the leading part of a matrix from some of its columns."""

from __future__ import annotations

import torch
from torch import Tensor

from curvflow.tasks.numerics.explicit import Explicit

# Pivots below this share of the largest diagonal entry are rounding errors.
NEGLIGIBLE = 1e-14


def pivoted_cholesky(
    matrix: Explicit, rank: int, *, shift: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Approximate A - shift I by L L^T, from `rank` columns of A and its diagonal.

    Args:
        matrix: symmetric, A - shift I positive semi-definite.
        rank: columns of L at most; fewer if nothing is left.
        shift: taken off the diagonal first, such as the noise of a kernel.

    Returns:
        L (D, k), and the diagonal of what is left, (D,), not below zero.

    Reference:
        Harbrecht, Peters and Schneider (2012), doi:10.1016/j.apnum.2011.10.001,
        Algorithm 1: the pivot is the largest diagonal entry left.
    """
    left_D = matrix.diagonal().double() - shift
    L_Dk = left_D.new_zeros(len(left_D), min(rank, len(left_D)))
    least = NEGLIGIBLE * float(left_D.max())
    for k in range(L_Dk.shape[1]):
        pivot = int(left_D.argmax())
        if left_D[pivot] <= least:
            return L_Dk[:, :k], left_D.clamp_min(0)
        number = torch.tensor([pivot], device=left_D.device)
        column_D = matrix.columns(number)[:, 0].double()
        column_D = column_D - L_Dk[:, :k] @ L_Dk[pivot, :k]
        column_D[pivot] -= shift
        L_Dk[:, k] = column_D / left_D[pivot].sqrt()
        left_D = left_D - L_Dk[:, k].square()
        left_D[pivot] = 0
    return L_Dk, left_D.clamp_min(0)
