"""Largest eigenvalues of the loss Hessian by block power iteration."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.eigenvalues import EigenvaluesParams
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.curvature import batched_hessian, described, same_problem
from curvflow.tasks.numerics.eigen import Ritz, block_power
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.problems import grouped, probed_bytes
from curvflow.tasks.registry import Machine, computes


def _params(member: Member) -> EigenvaluesParams:
    return cast("EigenvaluesParams", member.params)


def _columns(member: Member) -> int:
    params = _params(member)
    size = described(member).network.num_parameters
    return min(size, params.k + params.oversampling)


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: products, blocks, data."""
    problem, columns = described(member), _columns(member)
    blocks = 8 * 8 * problem.network.num_parameters * columns
    return problem.product_bytes(member.one("data"), columns) + blocks


@computes("probe.eigenvalues", member_bytes=member_bytes, data_bytes=probed_bytes)
def eigenvalues(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Find the eigenvalues of largest magnitude, with residuals and flags.

    Args:
        members: `weights` and `data`, and parameters that differ in the seed.
        machine: where to compute.

    Returns:
        Per member signed eigenvalues, residuals, flags and the work done.

    Raises:
        InputError: k exceeds the parameters, or weights or products hold NaN or
            infinity.
    """
    return grouped(members, same_problem, partial(_together, machine=machine))


def _together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    params, columns = _params(members[0]), _columns(members[0])
    operator = batched_hessian(members, machine, dtype=params.dtype, columns=columns)
    size = operator.shape[1]
    if params.k > size:
        raise InputError(
            f"k: expected at most the {size} parameters, got {params.k}. Lower k."
        )
    start_MDB = torch.stack([_start(_params(m).seed, size, columns) for m in members])
    ritz = block_power(
        operator,
        start_MDB.to(operator.device, operator.dtype),
        k=params.k,
        tol=params.tol,
        max_iterations=params.max_iterations,
    )
    return [_outcome(number, ritz, columns) for number in range(len(members))]


def _start(seed: int, size: int, columns: int) -> Tensor:
    generator = stream(seed, "block")
    return torch.randn(size, columns, generator=generator, dtype=torch.float64)


def _outcome(number: int, ritz: Ritz, columns: int) -> Outcome:
    iterations = int(ritz.iterations[number])
    k = ritz.values.shape[1]
    return Outcome(
        {
            "rank": np.arange(1, k + 1, dtype=np.int64),
            "eigenvalues": ritz.values[number].double().cpu().numpy(),
            "residuals": ritz.residuals[number].double().cpu().numpy(),
            "converged": ritz.converged[number].cpu().numpy(),
            "iterations": np.array(iterations, dtype=np.int64),
            "num_matvecs": np.array(iterations * columns, dtype=np.int64),
        }
    )
