"""Extreme eigenvalues of a curvature matrix, with residual bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import cast

import numpy as np
import torch

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.extremes.eigenvalues import EigenvaluesParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.curvature import operators
from curvflow.tasks.curvature.eigensolvers import (
    check_count,
    num_columns,
    random_columns,
    solve,
    solver_bytes,
)
from curvflow.tasks.curvature.ritz_data import (
    batch_key,
    data_bytes,
    has_stored,
    stored,
    stored_node,
)
from curvflow.tasks.curvature.stored_factors import (
    given_bytes,
    preconditioner_key,
    preconditioner_of,
)
from curvflow.tasks.networks.problems import Apart, grouped
from curvflow.tasks.numerics.krylov.eigenpairs import Ritz
from curvflow.tasks.numerics.krylov.ritz_spectra import best_run
from curvflow.tasks.registry import Machine, computes


def _params(member: Member) -> EigenvaluesParams:
    return cast("EigenvaluesParams", member.params)


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: products, blocks, data."""
    if has_stored(member):
        return 16 * stored_node(member)["ritz_values"].nbytes + (1 << 20)
    params, size = _params(member), operators.size_of(member)
    products = operators.product_bytes(member, num_columns(params, size))
    data = data_bytes(member)
    needed = solver_bytes(params, size, products=products, data=data)
    return needed + given_bytes(member)


@computes("probe.eigenvalues", member_bytes=member_bytes, data_bytes=data_bytes)
def eigenvalues(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Find extreme eigenvalues, with residuals and flags.

    Args:
        members: `weights` and `data`, `matrix` or `ritz`, and parameters that differ
            in the seed.
        machine: the device to compute on.

    Returns:
        Per member signed eigenvalues, residuals, flags and work.

    Raises:
        InputError: k exceeds the parameters, or weights or products hold NaN or
            infinity.
    """
    together = (
        _from_ritz_data
        if has_stored(members[0])
        else partial(_together, machine=machine)
    )
    return grouped(members, _key, together)


def _key(member: Member) -> object:
    key = batch_key(member)
    return key if isinstance(key, Apart) else (key, preconditioner_key(member))


def _together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    params, size = _params(members[0]), operators.size_of(members[0])
    check_count(params, size)
    columns = num_columns(params, size)
    operator = operators.tile_operator(members, machine, columns=columns).operator
    start_MDB = torch.stack(
        [random_columns(_params(m).seed, size, columns) for m in members]
    )
    factors = preconditioner_of(members, machine, size)
    ritz = solve(operator, start_MDB, params, factors)
    sizes: dict[str, int] = {}
    if operators.GRAPH in members[0].inputs:  # of which clusters are counted
        # Where all rows were multiplied at once, all copies of an eigenvalue are there.
        is_whole = (ritz.iterations == 1).all() and (ritz.num_matvecs == size).all()
        sizes = {"size": size, "columns": size if is_whole else columns}
    return [
        _outcome(number, ritz, sizes, with_vectors=params.eigenvectors)
        for number in range(len(members))
    ]


def _from_ritz_data(members: Sequence[Member]) -> list[Outcome]:
    """Take eigenvalues from the best stored Lanczos run of each member."""
    params = _params(members[0])
    if params.eigenvectors:
        raise InputError(
            "eigenvectors: true cannot be combined with stored Ritz data, which have "
            "none. Take weights."
        )
    ritz = best_run(stored(members), k=params.k, which=params.which, tol=params.tol)
    return [
        _outcome(number, ritz, {}, with_vectors=False) for number in range(len(members))
    ]


def _outcome(
    number: int, ritz: Ritz, sizes: Mapping[str, int], *, with_vectors: bool
) -> Outcome:
    k = ritz.values.shape[1]
    arrays: dict[str, Array] = {
        "rank": np.arange(1, k + 1, dtype=np.int64),
        "eigenvalues": ritz.values[number].double().cpu().numpy(),
        "residuals": ritz.residuals[number].double().cpu().numpy(),
        "converged": ritz.converged[number].cpu().numpy(),
        "iterations": np.array(int(ritz.iterations[number]), dtype=np.int64),
        "num_matvecs": np.array(int(ritz.num_matvecs[number]), dtype=np.int64),
        **{name: np.array(value, dtype=np.int64) for name, value in sizes.items()},
    }
    if with_vectors:
        arrays["eigenvectors"] = ritz.vectors[number].double().mT.cpu().numpy()
    return Outcome(arrays)
