"""Extreme eigenvalues along training, each checkpoint started from the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
import torch

from curvflow.schemas.kinds.probes.extremes.eigenvalue_tracking import (
    EigenvalueTrackingParams,
)
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.curvature import operators
from curvflow.tasks.curvature.eigensolvers import (
    check_count,
    num_columns,
    random_columns,
    solve,
    solver_bytes,
    warm_columns,
)
from curvflow.tasks.networks.problems import grouped, probed_bytes
from curvflow.tasks.numerics.krylov.eigenpairs import Ritz
from curvflow.tasks.registry import Machine, computes


def _params(member: Member) -> EigenvalueTrackingParams:
    return cast("EigenvalueTrackingParams", member.params)


def _at_checkpoint(member: Member, number: int) -> Member:
    """Return the member with the weights of one checkpoint."""
    trajectory = member.one("trajectory")
    arrays = {
        "weights": trajectory["weights"][number],
        "network": trajectory["network"],
    }
    weights = [replace(trajectory, arrays=arrays)]
    return replace(member, inputs={"weights": weights, "data": member.inputs["data"]})


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: products, blocks, checkpoints."""
    params, first = _params(member), _at_checkpoint(member, 0)
    size, stored = operators.size_of(first), member.one("trajectory")["weights"]
    vectors = params.k * len(stored) * size * params.eigenvectors
    products = operators.product_bytes(first, num_columns(params, size))
    data = probed_bytes(member)
    working = solver_bytes(params, size, products=products, data=data)
    return working + stored.nbytes + 16 * vectors


@computes(
    "probe.eigenvalue_tracking", member_bytes=member_bytes, data_bytes=probed_bytes
)
def eigenvalue_tracking(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Find extreme eigenvalues at all checkpoints of a training, in order.

    Args:
        members: `trajectory` and `data`, with parameters that differ in the seed.
        machine: the device to compute on.

    Returns:
        Per member signed eigenvalues, residuals, flags and work at each checkpoint.

    Raises:
        InputError: k exceeds the parameters, or weights or products hold NaN or
            infinity.
    """
    return grouped(members, _group_key, partial(_together, machine=machine))


def _group_key(member: Member) -> object:
    return len(member.one("trajectory")["weights"]), operators.batch_key(
        _at_checkpoint(member, 0)
    )


def _together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    params, size = _params(members[0]), operators.size_of(_at_checkpoint(members[0], 0))
    check_count(params, size)
    columns = num_columns(params, size)
    random_MDB = torch.stack(
        [random_columns(_params(member).seed, size, columns) for member in members]
    ).to(machine.device)
    ritz_of_checkpoint: list[Ritz] = []
    start_MDB = random_MDB
    for number in range(len(members[0].one("trajectory")["weights"])):
        at_checkpoint = [_at_checkpoint(member, number) for member in members]
        operator = operators.tile_operator(
            at_checkpoint, machine, columns=columns
        ).operator
        ritz = solve(operator, start_MDB, params)
        if params.warm_start:
            start_MDB = warm_columns(ritz.vectors, random_MDB)
        num_kept = params.k if params.eigenvectors else 0
        ritz_of_checkpoint.append(replace(ritz, vectors=ritz.vectors[..., :num_kept]))
    return [
        _outcome(number, member, ritz_of_checkpoint)
        for number, member in enumerate(members)
    ]


def _outcome(
    number: int, member: Member, ritz_of_checkpoint: Sequence[Ritz]
) -> Outcome:
    params = _params(member)

    def along(name: str) -> Array:
        parts = [
            getattr(ritz, name)[number].cpu().numpy() for ritz in ritz_of_checkpoint
        ]
        return np.stack(parts)

    matvecs, converged = along("num_matvecs"), along("converged")
    arrays: dict[str, Array] = {
        "checkpoint": member.one("trajectory")["checkpoint"],
        "rank": np.arange(1, params.k + 1, dtype=np.int64),
        "eigenvalues": along("values").astype(np.float64),
        "residuals": along("residuals"),
        "converged": converged,
        "checkpoint_matvecs": matvecs,
        "num_matvecs": np.array(matvecs.sum()),
        "all_converged": np.array(converged.all()),
    }
    if params.eigenvectors:
        arrays["eigenvectors"] = along("vectors").astype(np.float64).swapaxes(1, 2)
    return Outcome(arrays)
