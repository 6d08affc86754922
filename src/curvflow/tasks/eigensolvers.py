"""What finds few eigenvalues: by which method, from which columns, in what memory."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.eigenvalues import EigenvaluesParams
from curvflow.tasks.numerics.eigen import block_power
from curvflow.tasks.numerics.eigenpairs import Ritz
from curvflow.tasks.numerics.lobpcg import lobpcg
from curvflow.tasks.numerics.operators import BatchedOperator
from curvflow.tasks.numerics.restarted import basis_size, restarted_lanczos
from curvflow.tasks.numerics.streams import stream

# Blocks of vectors that a method holds beside those of a product; of lanczos, copies of
# its basis.
HELD = {"power": 8, "lanczos": 3, "lobpcg": 16}

# Share of random directions in a warm start: without any, an eigenvalue that comes to
# the fore would be missed if its vector is orthogonal to those found before.
RANDOM = 1e-3


def num_columns(params: EigenvaluesParams, size: int) -> int:
    """Return how many vectors are multiplied at once.

    Args:
        params: which method, and how many columns of it.
        size: D.
    """
    wanted = params.k + params.oversampling
    return min(size, params.block if params.method == "lanczos" else wanted)


def block_bytes(params: EigenvaluesParams, size: int) -> int:
    """Return the bytes of what a method holds beside a product.

    Args:
        params: which method, and how many columns of it.
        size: D.
    """
    columns = num_columns(params, size)
    held = columns
    if params.method == "lanczos":
        held = basis_size(params.k, columns) + columns
    vectors = HELD[params.method] * held + 2 * params.k * params.eigenvectors
    return 8 * size * vectors


def check_count(params: EigenvaluesParams, size: int) -> None:
    """Refuse more eigenvalues than there are.

    Args:
        params: how many are wanted.
        size: D.

    Raises:
        InputError: k exceeds D.
    """
    if params.k > size:
        raise InputError(
            f"k: expected at most the {size} parameters, got {params.k}. Lower k."
        )


def random_columns(seed: int, size: int, columns: int) -> Tensor:
    """Return a first block, (D, B), float64.

    Args:
        seed: of the draw.
        size: D.
        columns: B.
    """
    generator = stream(seed, "block")
    return torch.randn(size, columns, generator=generator, dtype=torch.float64)


def warm_columns(vectors_MDK: Tensor, random_MDB: Tensor) -> Tensor:
    """Return first blocks near the eigenvectors of similar operators.

    Args:
        vectors_MDK: these vectors; where there are more than columns, several add up
            to one, and where one is NaN, or there are fewer, columns are random.
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
    operator: BatchedOperator, start_MDB: Tensor, params: EigenvaluesParams
) -> Ritz:
    """Find the eigenvalues that parameters ask for.

    Args:
        operator: symmetric maps of M models.
        start_MDB: first blocks.
        params: how many, which, and by which method.

    Returns:
        The pairs with residuals and flags.

    Raises:
        InputError: a product holds NaN or infinity.
    """
    if params.method == "power":
        method = block_power
    else:
        other = lobpcg if params.method == "lobpcg" else restarted_lanczos
        method = partial(other, which=params.which)
    return method(
        operator,
        start_MDB.to(operator.device, operator.dtype),
        k=params.k,
        tol=params.tol,
        max_iterations=params.max_iterations,
    )
