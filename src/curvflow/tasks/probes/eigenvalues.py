"""Extreme eigenvalues of a curvature matrix, with bounds of their errors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.eigenvalues import EigenvaluesParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks import operators
from curvflow.tasks.krylov import alike, data_bytes, has_stored, stored
from curvflow.tasks.numerics.eigen import block_power
from curvflow.tasks.numerics.eigenpairs import Ritz
from curvflow.tasks.numerics.lobpcg import lobpcg
from curvflow.tasks.numerics.operators import BatchedOperator
from curvflow.tasks.numerics.restarted import basis_size, restarted_lanczos
from curvflow.tasks.numerics.runs import best_run
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.problems import grouped
from curvflow.tasks.registry import Machine, computes

# Blocks of vectors that a method holds beside those of a product; of lanczos, copies of
# its basis.
HELD = {"power": 8, "lanczos": 3, "lobpcg": 16}


def _params(member: Member) -> EigenvaluesParams:
    return cast("EigenvaluesParams", member.params)


def _columns(member: Member) -> int:
    params = _params(member)
    wanted = params.k + params.oversampling
    return min(
        operators.size_of(member),
        params.block if params.method == "lanczos" else wanted,
    )


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: products, blocks, data."""
    if has_stored(member):
        return 16 * member.one("ritz")["ritz_values"].nbytes + (1 << 20)
    params, columns = _params(member), _columns(member)
    held = columns
    if params.method == "lanczos":
        held = basis_size(params.k, columns) + columns
    vectors = HELD[params.method] * held + 2 * params.k * params.eigenvectors
    blocks = 8 * operators.size_of(member) * vectors
    return operators.product_bytes(member, columns) + blocks


@computes("probe.eigenvalues", member_bytes=member_bytes, data_bytes=data_bytes)
def eigenvalues(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Find extreme eigenvalues, with residuals and flags.

    Args:
        members: `weights` and `data`, `matrix` or `ritz`, and parameters that differ
            in the seed.
        machine: where to compute.

    Returns:
        Per member signed eigenvalues, residuals, flags and the work done.

    Raises:
        InputError: k exceeds the parameters, or weights or products hold NaN or
            infinity.
    """
    together = _read if has_stored(members[0]) else partial(_together, machine=machine)
    return grouped(members, alike, together)


def _together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    params, columns = _params(members[0]), _columns(members[0])
    operator = operators.subject(members, machine, columns=columns).operator
    size = operator.shape[1]
    if params.k > size:
        raise InputError(
            f"k: expected at most the {size} parameters, got {params.k}. Lower k."
        )
    start_MDB = torch.stack([_start(_params(m).seed, size, columns) for m in members])
    found = _solve(operator, start_MDB.to(operator.device, operator.dtype), params)
    return [
        _outcome(number, found, with_vectors=params.eigenvectors)
        for number in range(len(members))
    ]


def _solve(
    operator: BatchedOperator, start_MDB: Tensor, params: EigenvaluesParams
) -> Ritz:
    if params.method == "power":
        solve = block_power
    else:
        method = lobpcg if params.method == "lobpcg" else restarted_lanczos
        solve = partial(method, which=params.which)
    return solve(
        operator,
        start_MDB,
        k=params.k,
        tol=params.tol,
        max_iterations=params.max_iterations,
    )


def _read(members: Sequence[Member]) -> list[Outcome]:
    """Take eigenvalues from stored Ritz data: one run of each member."""
    params = _params(members[0])
    if params.eigenvectors:
        raise InputError(
            "eigenvectors: expected false, got true. Stored Ritz data have none; take "
            "weights."
        )
    found = best_run(stored(members), k=params.k, which=params.which, tol=params.tol)
    return [
        _outcome(number, found, with_vectors=False) for number in range(len(members))
    ]


def _start(seed: int, size: int, columns: int) -> Tensor:
    generator = stream(seed, "block")
    return torch.randn(size, columns, generator=generator, dtype=torch.float64)


def _outcome(number: int, ritz: Ritz, *, with_vectors: bool) -> Outcome:
    k = ritz.values.shape[1]
    arrays: dict[str, Array] = {
        "rank": np.arange(1, k + 1, dtype=np.int64),
        "eigenvalues": ritz.values[number].double().cpu().numpy(),
        "residuals": ritz.residuals[number].double().cpu().numpy(),
        "converged": ritz.converged[number].cpu().numpy(),
        "iterations": np.array(int(ritz.iterations[number]), dtype=np.int64),
        "num_matvecs": np.array(int(ritz.num_matvecs[number]), dtype=np.int64),
    }
    if with_vectors:
        arrays["eigenvectors"] = ritz.vectors[number].double().mT.cpu().numpy()
    return Outcome(arrays)
