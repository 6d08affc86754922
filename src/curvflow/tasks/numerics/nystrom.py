"""The leading part of positive definite operators, from products alone."""

from __future__ import annotations

import torch
from torch import Tensor

from curvflow.tasks.numerics.operators import BatchedOperator
from curvflow.tasks.numerics.products import product
from curvflow.tasks.numerics.ranges import new_directions


def nystrom(
    operator: BatchedOperator,
    start_MDb: Tensor,
    *,
    num_blocks: int,
    enough: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Approximate A by A Q (Q^T A Q)^-1 Q^T A, Q a block Krylov basis.

    Each block is that of the directions which the last products add; the products are
    all kept, so b columns and p blocks cost b p products.

    Args:
        operator: positive semi-definite maps A of M models.
        start_MDb: first block, random.
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
