"""Eigenvalues of largest magnitude of a batch of symmetric operators."""

from __future__ import annotations

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.krylov.eigenpairs import (
    Ritz,
    at_least_two,
    within_tolerance,
    zero_level,
)
from curvflow.tasks.numerics.operators.base import (
    AnyOperator,
    BatchedOperator,
    as_batched,
    as_columns,
)


def block_power(
    operator: AnyOperator,
    start_MDB: Tensor,
    *,
    k: int,
    tol: float,
    max_iterations: int,
) -> Ritz:
    """Find eigenvalues by block power iteration with Rayleigh-Ritz in every step.

    Each model stops by itself, so what it returns does not depend on its siblings. An
    eigenvalue has converged if its residual is at most `tol` of its magnitude, or if
    both are at the rounding error of the largest, which shows a zero eigenvalue.

    Args:
        operator: symmetric maps A of M models, or one of a single model, (D, D).
        start_MDB: first blocks of B >= k columns, linearly independent; (D, B) of a
            single model.
        k: eigenpairs wanted.
        tol: residual allowed, relative to the eigenvalue.
        max_iterations: products with a block at most; at least 1.

    Returns:
        The pairs with residuals and flags; those that have not converged are flagged.

    Raises:
        InputError: a product holds NaN or infinity.

    Examples:
        >>> from curvflow.tasks.numerics import Dense, block_power
        >>> A = Dense(torch.diag(torch.arange(1.0, 41.0).double()))
        >>> start = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
        >>> found = block_power(A, start.double(), k=1, tol=1e-8, max_iterations=999)
        >>> round(found.values.item(), 6)
        40.0

    Reference:
        Golub and Van Loan (2013), Matrix Computations, section 8.2.4 (Ritz
        acceleration). The signs of QR and eigenvalues of equal modulus and opposite
        sign do not disturb it, unlike criteria on the change of columns.
    """
    operator, start_MDB = as_batched(operator), as_columns(start_MDB)
    models, size, _ = operator.shape
    ritz = Ritz.empty(models, size, k, start_MDB)
    active = torch.arange(models, device=start_MDB.device)
    basis_MDB = torch.linalg.qr(start_MDB).Q
    for iteration in range(1, max_iterations + 1):
        values, vectors, images = _rayleigh_ritz(operator, basis_MDB)
        residuals, within = _judge(values, vectors, images, tol=tol)
        ritz.write(
            active,
            values=values,
            vectors=vectors,
            residuals=residuals,
            within=within,
            iteration=iteration,
        )
        going = ~within[:, :k].all(1)
        if not going.any():
            break
        if not going.all():
            kept = at_least_two(going.nonzero().squeeze(1))
            active, images = active[kept], images[kept]
            operator = operator.select(kept)
        basis_MDB = torch.linalg.qr(images).Q
    return ritz


def _judge(
    values_MB: Tensor, vectors_MDB: Tensor, images_MDB: Tensor, *, tol: float
) -> tuple[Tensor, Tensor]:
    """Return residuals, float64, and which of them are within the tolerance."""
    # Squares of small single-precision numbers would underflow to a residual of zero.
    gaps_MDB = images_MDB.double() - vectors_MDB.double() * values_MB[:, None].double()
    residuals: Tensor = gaps_MDB.norm(dim=1)
    zero = zero_level(vectors_MDB.shape[1], vectors_MDB.dtype)
    largest_M = values_MB[:, 0].abs()
    return residuals, within_tolerance(
        values_MB, residuals, largest_M, tol=tol, zero=zero
    )


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
            "weights: expected finite Hessian products, got NaN or infinity. Take "
            "weights that have not diverged."
        )
    values_MB, turn_MBB = torch.linalg.eigh((small_MBB + small_MBB.mT) / 2)
    order = values_MB.abs().argsort(dim=1, descending=True, stable=True)
    turn_MBB = turn_MBB.gather(2, order.unsqueeze(1).expand_as(turn_MBB))
    values_MB = values_MB.gather(1, order)
    return values_MB, basis_MDB @ turn_MBB, images_MDB @ turn_MBB
