"""Eigenvalues of largest magnitude of a batch of symmetric operators."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.operators import BatchedOperator


@dataclass(frozen=True)
class Ritz:
    """Approximate eigenpairs of M operators, by descending magnitude.

    Attributes:
        values: signed eigenvalues, (M, K).
        vectors: unit eigenvectors as columns, (M, D, K).
        residuals: ||Au - theta u||, (M, K); some eigenvalue lies within it.
        converged: whether the residual is within the tolerance, (M, K).
        iterations: products with a block, (M,).
    """

    values: Tensor
    vectors: Tensor
    residuals: Tensor
    converged: Tensor
    iterations: Tensor


def block_power(
    operator: BatchedOperator,
    start_MDB: Tensor,
    *,
    k: int,
    tol: float,
    max_iterations: int,
) -> Ritz:
    """Find eigenvalues by block power iteration with Rayleigh-Ritz in every step.

    Each model stops by itself, so what it returns does not depend on its siblings. An
    eigenvalue has converged if its residual is at most `tol` of its magnitude, or if
    both are at the rounding error of the largest, which tells a zero eigenvalue.

    Args:
        operator: symmetric maps A of M models.
        start_MDB: first blocks of B >= k columns, linearly independent.
        k: eigenpairs wanted.
        tol: residual allowed, relative to the eigenvalue.
        max_iterations: products with a block at most; at least 1.

    Returns:
        The pairs with residuals and flags; those that have not converged are flagged.

    Raises:
        InputError: a product holds NaN or infinity.

    Reference:
        Golub and Van Loan (2013), Matrix Computations, section 8.2.4 (Ritz
        acceleration). The signs of QR and eigenvalues of equal modulus and opposite
        sign do not disturb it, unlike criteria on the change of columns.
    """
    models, size, _ = operator.shape
    found = _empty(models, size, k, start_MDB)
    active = torch.arange(models, device=start_MDB.device)
    basis_MDB = torch.linalg.qr(start_MDB).Q
    for iteration in range(1, max_iterations + 1):
        values, vectors, images = _rayleigh_ritz(operator, basis_MDB)
        residuals, within = _judge(values, vectors, images, tol=tol)
        found.values[active] = values[:, :k]
        found.vectors[active] = vectors[..., :k]
        found.residuals[active] = residuals[:, :k]
        found.converged[active] = within[:, :k]
        found.iterations[active] = iteration
        going = ~within[:, :k].all(1)
        if not going.any():
            break
        if not going.all():
            kept = _at_least_two(going.nonzero().squeeze(1))
            active, images = active[kept], images[kept]
            operator = operator.select(kept)
        basis_MDB = torch.linalg.qr(images).Q
    return found


def _empty(models: int, size: int, k: int, like: Tensor) -> Ritz:
    return Ritz(
        like.new_empty(models, k),
        like.new_empty(models, size, k),
        like.new_empty(models, k, dtype=torch.float64),
        torch.zeros(models, k, dtype=torch.bool, device=like.device),
        torch.zeros(models, dtype=torch.int64, device=like.device),
    )


def _judge(
    values_MB: Tensor, vectors_MDB: Tensor, images_MDB: Tensor, *, tol: float
) -> tuple[Tensor, Tensor]:
    """Return residuals, float64, and which of them are within the tolerance."""
    size, eps = vectors_MDB.shape[1], torch.finfo(vectors_MDB.dtype).eps
    # Squares of small single-precision numbers would underflow to a residual of zero.
    magnitudes = values_MB.double().abs()
    gaps_MDB = images_MDB.double() - vectors_MDB.double() * values_MB[:, None].double()
    residuals = gaps_MDB.norm(dim=1)
    # Rounding of a sum over D terms grows as its root.
    zero = 10 * size**0.5 * eps * magnitudes[:, :1]
    is_zero = (magnitudes <= zero) & (residuals <= zero)
    return residuals, (residuals <= tol * magnitudes) | is_zero


def _at_least_two(chosen: Tensor) -> Tensor:
    """Set a model left alone beside a copy of itself: see decision 0003."""
    return chosen.repeat(2) if len(chosen) == 1 else chosen


def _rayleigh_ritz(
    operator: BatchedOperator, basis_MDB: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return Ritz values, vectors and their images, by descending magnitude.

    Raises:
        InputError: a product holds NaN or infinity.
    """
    images_MDB = operator @ basis_MDB
    small_MBB = basis_MDB.mT @ images_MDB
    if not torch.isfinite(small_MBB).all():
        raise InputError(
            "weights: expected finite Hessian products, got NaN or infinity"
        )
    values_MB, turn_MBB = torch.linalg.eigh((small_MBB + small_MBB.mT) / 2)
    order = values_MB.abs().argsort(dim=1, descending=True, stable=True)
    turn_MBB = turn_MBB.gather(2, order.unsqueeze(1).expand_as(turn_MBB))
    values_MB = values_MB.gather(1, order)
    return values_MB, basis_MDB @ turn_MBB, images_MDB @ turn_MBB
