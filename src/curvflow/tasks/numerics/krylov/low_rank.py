"""Leading parts of matrices: range bases, Nystrom and pivoted Cholesky."""

from __future__ import annotations

import torch
from torch import Tensor

from curvflow.tasks.numerics.operators.base import (
    AnyOperator,
    as_batched,
    as_columns,
    product,
)
from curvflow.tasks.numerics.operators.matrices import Explicit

# Directions below this share of the longest column are rounding errors.
NEGLIGIBLE = 1e-10


def new_directions(columns_MDS: Tensor, basis_MDK: Tensor) -> Tensor:
    """Return orthonormal columns that span what a basis lacks of some columns.

    Args:
        columns_MDS: the vectors to be spanned, float64.
        basis_MDK: orthonormal columns, or zeros.

    Returns:
        Columns (M, D, min(S, D)) orthogonal to the basis; zero where the columns have
        nothing new.
    """
    longest_M = columns_MDS.norm(dim=1).amax(1)
    directions_MDK = _left(_without(columns_MDS, basis_MDK), NEGLIGIBLE * longest_M)
    # What is short against the columns is orthogonal only after a second pass.
    return _left(_without(directions_MDK, basis_MDK), torch.full_like(longest_M, 0.5))


def _without(columns_MDS: Tensor, basis_MDK: Tensor) -> Tensor:
    for _ in range(2):
        columns_MDS = columns_MDS - basis_MDK @ (basis_MDK.mT @ columns_MDS)
    return columns_MDS


def _left(columns_MDS: Tensor, least_M: Tensor) -> Tensor:
    """Return left singular vectors; zero where the singular value is too small."""
    left_MDS, values_MS, _ = torch.linalg.svd(columns_MDS, full_matrices=False)
    kept_M1S = (values_MS > least_M[:, None]).unsqueeze(1)
    return torch.where(kept_M1S, left_MDS, 0.0)


def nystrom(
    operator: AnyOperator,
    start_MDb: Tensor,
    *,
    num_blocks: int,
    enough: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Approximate A by A Q (Q^T A Q)^-1 Q^T A, Q a block Krylov basis.

    Each block is that of the directions which the last products add; the products are
    all kept, so b columns and p blocks cost b p products.

    Args:
        operator: positive semi-definite maps A of M models, or one, (D, D).
        start_MDb: first block, random; (D, b) of a single model.
        num_blocks: p, at most.
        enough: a block in whose directions no model's A exceeds it is the last: most of
            what the blocks before it lack lies in them.

    Returns:
        Eigenvectors as columns (M, D, k), k = b p, and eigenvalues (M, k), descending,
        of the approximation, which is nowhere above A.

    Reference:
        Frangella, Tropp and Udell (2023), doi:10.1137/21M1466244, Algorithm 2.1, with
        the range of Musco and Musco (2015), arXiv:1504.05477.
    """
    operator, start_MDb = as_batched(operator), as_columns(start_MDb)
    start_MDb = start_MDb.to(operator.device).double()
    Q_MDk = torch.linalg.qr(start_MDb).Q
    Y_MDk = product(operator, Q_MDk)
    newest_MDb = Y_MDk
    for _ in range(num_blocks - 1):
        if enough is not None and _largest(Q_MDk, newest_MDb) <= enough:
            break
        more_MDb = new_directions(newest_MDb, Q_MDk)
        newest_MDb = product(operator, more_MDb)
        Q_MDk = torch.cat([Q_MDk, more_MDb], dim=2)
        Y_MDk = torch.cat([Y_MDk, newest_MDb], dim=2)
    return _factorised(Q_MDk, Y_MDk)


def _largest(Q_MDk: Tensor, newest_MDb: Tensor) -> float:
    """Return the largest Ritz value, of any model, in the newest block's directions."""
    block_MDb = Q_MDk[:, :, -newest_MDb.shape[2] :]
    return float(torch.linalg.eigvalsh(block_MDb.mT @ newest_MDb).max())


def _factorised(Q_MDk: Tensor, Y_MDk: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvectors and eigenvalues, with a shift against rounding."""
    shift_M11 = 1e-15 * Y_MDk.norm(dim=(1, 2))[:, None, None]
    shifted_MDk = Y_MDk + shift_M11 * Q_MDk
    small_Mkk = Q_MDk.mT @ shifted_MDk
    values_Mk, turn_Mkk = torch.linalg.eigh((small_Mkk + small_Mkk.mT) / 2)
    values_Mk = torch.maximum(values_Mk, shift_M11[:, 0] / 10)
    root_MDk = shifted_MDk @ (turn_Mkk / values_Mk.sqrt().unsqueeze(1))
    U_MDk, singular_Mk, _ = torch.linalg.svd(root_MDk, full_matrices=False)
    return U_MDk, (singular_Mk.square() - shift_M11[:, 0]).clamp_min(0)


# Pivots below this share of the largest diagonal entry are rounding errors.
NEGLIGIBLE_PIVOT = 1e-14


def pivoted_cholesky(
    matrix: Explicit, rank: int, *, shift: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Approximate A - shift I by L L^T, from `rank` columns of A and its diagonal.

    Args:
        matrix: symmetric, A - shift I positive semi-definite.
        rank: columns of L at most; fewer if nothing is left.
        shift: taken off the diagonal first, such as the noise of a kernel.

    Returns:
        L (D, k), and the diagonal of the residual, (D,), not below zero.

    Reference:
        Harbrecht, Peters and Schneider (2012), doi:10.1016/j.apnum.2011.10.001,
        Algorithm 1: the pivot is the largest diagonal entry left.
    """
    left_D = matrix.diagonal().double() - shift
    L_Dk = left_D.new_zeros(len(left_D), min(rank, len(left_D)))
    least = NEGLIGIBLE_PIVOT * float(left_D.max())
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
