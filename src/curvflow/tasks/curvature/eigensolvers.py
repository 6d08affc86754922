"""Eigensolvers for a few eigenvalues: method, start blocks and peak memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.extremes.eigenvalues import EigenvaluesParams
from curvflow.tasks.numerics.kronecker.blocks import BlockOperator
from curvflow.tasks.numerics.krylov.eigenpairs import Ritz
from curvflow.tasks.numerics.krylov.lobpcg import lobpcg
from curvflow.tasks.numerics.krylov.power_iteration import block_power
from curvflow.tasks.numerics.krylov.restarted_lanczos import (
    basis_size,
    restarted_lanczos,
)
from curvflow.tasks.numerics.operators.base import BatchedOperator
from curvflow.tasks.numerics.streams import stream

# Fraction of random directions in a warm start: without it, an eigenvalue that enters
# the top k would be missed if its vector is orthogonal to the known ones.
RANDOM = 1e-3


def num_columns(params: EigenvaluesParams, size: int) -> int:
    """Return the number of vectors multiplied at once.

    Args:
        params: method and number of columns.
        size: D.
    """
    wanted = params.k + params.oversampling
    return min(size, params.block if params.method == "lanczos" else wanted)


def solver_bytes(
    params: EigenvaluesParams, size: int, *, products: int, data: int
) -> int:
    """Return the estimated peak bytes of one model's eigenvalues.

    Args:
        params: method, number of columns and precision.
        size: D.
        products: bytes of a product with the columns, data included.
        data: bytes that stay in memory between products.
    """
    during, peak = _vectors_held(params, size)
    most = max(products + 8 * size * during, data + 8 * size * peak)
    return int(most) + 16 * size * params.k * params.eigenvectors


def _vectors_held(params: EigenvaluesParams, size: int) -> tuple[float, float]:
    """Return the vectors in memory during a product and at the peak, in float64.

    Counted by `peak_bytes`; tests compare. In single precision some are half as large,
    and some are held in both.
    """
    k, columns, single = params.k, num_columns(params, size), params.dtype == "float32"
    if params.method == "power":
        during = 3 * columns + k / 2 if single else 4 * columns + k
        return during, during + 3 * columns
    if params.method == "lobpcg":
        during = (9 if single else 7) * columns + k
        return during, during + (6.5 if single else 7) * columns
    basis = basis_size(k, columns)
    rows = k + (basis - k) // 3 + columns  # rows that a restart copies
    if not single:
        during = basis + 2 * columns + k
        return during, during + rows
    during = basis / 2 + 3 * columns + k
    return during, during + max(rows / 2, k * 1.5 + 2)


def check_count(params: EigenvaluesParams, size: int) -> None:
    """Refuse more eigenvalues than there are.

    Args:
        params: k, the number of eigenvalues.
        size: D.

    Raises:
        InputError: k exceeds D.
    """
    if params.k > size:
        raise InputError(
            f"k: expected at most the {size} parameters, got {params.k}. Lower k."
        )


def random_columns(seed: int, size: int, columns: int) -> Tensor:
    """Return a random start block, (D, B), float64.

    Args:
        seed: seed of the draw.
        size: D.
        columns: B.
    """
    generator = stream(seed, "block")
    return torch.randn(size, columns, generator=generator, dtype=torch.float64)


def warm_columns(vectors_MDK: Tensor, random_MDB: Tensor) -> Tensor:
    """Return start blocks near the eigenvectors of similar operators.

    Args:
        vectors_MDK: these eigenvectors; if there are more than columns, several add up
            to one column; columns without a finite vector are random.
        random_MDB: random columns.

    Returns:
        The blocks, (M, D, B), not normalised.
    """
    block = random_MDB.shape[2]
    start_MDB: Tensor = RANDOM * random_MDB / random_MDB.norm(dim=1, keepdim=True)
    known_MDK = vectors_MDK.to(start_MDB).nan_to_num(nan=0.0)
    for number in range(known_MDK.shape[2]):
        start_MDB[..., number % block] += known_MDK[..., number]
    return start_MDB


def solve(
    operator: BatchedOperator,
    start_MDB: Tensor,
    params: EigenvaluesParams,
    factors: BlockOperator | None = None,
) -> Ritz:
    """Find the eigenvalues that the parameters specify.

    Args:
        operator: symmetric maps of M models.
        start_MDB: start blocks.
        params: number, end of the spectrum and method.
        factors: of the same matrices, by which residuals of lobpcg are preconditioned.

    Returns:
        The pairs with residuals and flags.

    Raises:
        InputError: a product holds NaN or infinity.
    """
    method: Callable[..., Ritz]
    if params.method == "power":
        method = block_power
    elif params.method == "lobpcg" and params.which != "LM":
        given = factors and factors.towards(params.which)
        method = partial(lobpcg, which=params.which, preconditioner=given)
    else:
        method = partial(restarted_lanczos, which=params.which)
    return method(
        operator,
        start_MDB.to(operator.device, operator.dtype),
        k=params.k,
        tol=params.tol,
        max_iterations=params.max_iterations,
    )
