"""Running second moments of the rows of matrices, of low rank plus a multiple of I.

F = R'KR + rho (I - R'R) with R R' = I: all of F within the space of the rows of R, and
rho in every direction outside it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

# Times that the first matrices enter, so that R turns towards them.
FIRST_UPDATES = 3

# Eigenvalues are roots of those of a square: below, as a share of the largest, rounding
# hides them.
LEAST_ROOT = 1e-7


class OnlineFisher(NamedTuple):
    """F of M models.

    Attributes:
        rows: R, orthonormal, (M, R, D).
        core: K, symmetric, (M, R, R).
        floor: rho, (M, 1, 1).
    """

    rows: Tensor
    core: Tensor
    floor: Tensor

    @property
    def trace(self) -> Tensor:
        """The trace of F, (M, 1, 1)."""
        rank, size = self.rows.shape[1:]
        within_M = self.core.diagonal(dim1=1, dim2=2).sum(1)
        return within_M[:, None, None] + (size - rank) * self.floor


class Law(NamedTuple):
    """How moments run, (M, 1, 1) each.

    Attributes:
        share: weight of the newest, below 1.
        delta: least rho as a share of the largest eigenvalue.
        eps: least rho, above 0.
    """

    share: Tensor
    delta: Tensor
    eps: Tensor


def isotropic(floor_M11: Tensor, rank: int, size: int) -> OnlineFisher:
    """Return F = rho I.

    Args:
        floor_M11: rho.
        rank: rows of R.
        size: D, at least the rank.

    Returns:
        F; the rows of R are the first cosines over the D columns, no column before
        another.
    """
    place_D = (torch.arange(size).double() + 0.5) * math.pi / size
    rows_RD = (torch.arange(rank)[:, None] * place_D).cos()
    rows_RD = rows_RD / rows_RD.norm(dim=1, keepdim=True)
    rows_MRD = rows_RD.to(floor_M11).expand(len(floor_M11), -1, -1)
    return OnlineFisher(rows_MRD, _scaled_eye(floor_M11, rank), floor_M11)


def updated(fisher: OnlineFisher, matrices_MND: Tensor, law: Law) -> OnlineFisher:
    """Return T = share X'X / N + (1 - share) F, brought back to low rank plus rho I.

    The new rows span R T, one step of subspace iteration: R <- Z^(-1/2) Y, K <- Z^(1/2)
    with Y = R T, Z = Y Y'. rho keeps the trace, and bounds the eigenvalues of K.

    Args:
        fisher: F.
        matrices_MND: X of each model.
        law: share and bounds.

    Returns:
        The new F, computed in double precision.

    Reference:
        Povey, Zhang and Khudanpur (2015), arXiv:1410.7455, appendix. There R is turned
        so that K is diagonal. Here it is not: F is the same, and changes smoothly where
        eigenvalues are equal.
    """
    rows_MRD, core_MRR, floor_M11 = (leaf.double() for leaf in fisher)
    X_MND = matrices_MND.double()
    share_M11, delta_M11, eps_M11 = (leaf.double() for leaf in law)
    count, size = X_MND.shape[1:]
    newest_MRD = (rows_MRD @ X_MND.mT) @ X_MND / count
    Y_MRD = share_M11 * newest_MRD + (1 - share_M11) * core_MRR @ rows_MRD
    newest_M11 = X_MND.square().sum((1, 2), keepdim=True) / count
    kept = OnlineFisher(rows_MRD, core_MRR, floor_M11).trace
    trace_M11 = share_M11 * newest_M11 + (1 - share_M11) * kept
    # A model that has diverged must not end the others.
    square_MRR = torch.nan_to_num(Y_MRD @ Y_MRD.mT, 0.0, 0.0, 0.0)
    values_MR, vectors_MRR = torch.linalg.eigh(square_MRR)
    roots_M1R = values_MR.clamp(min=0).sqrt().unsqueeze(1)
    largest_M11 = roots_M1R.amax(2, keepdim=True)
    left_M11 = trace_M11 - roots_M1R.sum(2, keepdim=True)
    floor_M11 = left_M11 / max(1, size - rows_MRD.shape[1])
    least_M11 = torch.maximum(eps_M11, delta_M11 * largest_M11)
    floor_M11 = torch.maximum(floor_M11, least_M11)
    safe_M1R = torch.maximum(roots_M1R, LEAST_ROOT * largest_M11)
    turned_MRR = (vectors_MRR / safe_M1R) @ vectors_MRR.mT
    bounded_M1R = torch.maximum(roots_M1R, floor_M11)
    core_MRR = (vectors_MRR * bounded_M1R) @ vectors_MRR.mT
    found = turned_MRR @ Y_MRD, core_MRR, floor_M11
    return OnlineFisher(*(leaf.to(matrices_MND) for leaf in found))


def first_fisher(matrices_MND: Tensor, rank: int, law: Law) -> OnlineFisher:
    """Return the F that the first matrices begin with.

    Args:
        matrices_MND: X of each model.
        rank: rows of R.
        law: share and bounds.

    Returns:
        F after a few updates by the same X, from a multiple of I at the least rho.
    """
    count, size = matrices_MND.shape[1:]
    trace_M11 = matrices_MND.square().sum((1, 2), keepdim=True) / count
    floor_M11 = torch.maximum(law.delta * trace_M11, law.eps)
    fisher = isotropic(floor_M11, rank, size)
    for _ in range(FIRST_UPDATES):
        fisher = updated(fisher, matrices_MND, law)
    return fisher


def preconditioned(
    fisher: OnlineFisher, matrices_MND: Tensor, alpha_M11: Tensor, eps_M11: Tensor
) -> Tensor:
    """Return X (F + alpha / D max(tr F, eps) I)^-1, scaled to the norm of X.

    Args:
        fisher: F.
        matrices_MND: X of each model.
        alpha_M11: damping as a multiple of the mean eigenvalue.
        eps_M11: least trace that damping is taken from.

    Returns:
        The matrices (M, N, D).
    """
    rows_MRD, core_MRR, floor_M11 = fisher
    rank, size = rows_MRD.shape[1:]
    above_MRR = core_MRR - _scaled_eye(floor_M11, rank)
    outside_M11 = floor_M11 + alpha_M11 / size * torch.maximum(fisher.trace, eps_M11)
    # Up to a factor, the inverse is I - R'CR with C = (K - rho + b)^-1 (K - rho), b
    # being what the damped matrix is outside the rows of R.
    damped_MRR = above_MRR + _scaled_eye(outside_M11, rank)
    shrink_MRR, _ = torch.linalg.solve_ex(damped_MRR, above_MRR)
    found_MND = matrices_MND - (matrices_MND @ rows_MRD.mT) @ shrink_MRR @ rows_MRD
    before_M11 = torch.linalg.vector_norm(matrices_MND, dim=(1, 2), keepdim=True)
    after_M11 = torch.linalg.vector_norm(found_MND, dim=(1, 2), keepdim=True)
    scale_M11 = torch.where(after_M11 > 0, before_M11 / after_M11, 1)
    scaled_MND: Tensor = found_MND * scale_M11
    return scaled_MND


def _scaled_eye(scale_M11: Tensor, size: int) -> Tensor:
    return torch.diag_embed(scale_M11[:, :, 0].expand(-1, size))
