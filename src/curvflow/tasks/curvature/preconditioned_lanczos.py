"""Lanczos runs on operators preconditioned by factors, Cholesky or Nyström."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.logdet import LogdetParams
from curvflow.schemas.nodes import Member
from curvflow.tasks.curvature.operators import (
    MATRIX,
    data_operator,
    is_semidefinite,
    size_of,
    tile_operator,
)
from curvflow.tasks.curvature.stored_factors import given_bytes, preconditioner_of
from curvflow.tasks.numerics.estimators.logdets import Controls, moment_controls
from curvflow.tasks.numerics.estimators.traces import random_vectors
from curvflow.tasks.numerics.kronecker.blocks import DampedBlocks
from curvflow.tasks.numerics.krylov.lanczos import RitzData, joined, lanczos
from curvflow.tasks.numerics.krylov.low_rank import nystrom, pivoted_cholesky
from curvflow.tasks.numerics.operators.algebra import (
    LowRank,
    Preconditioner,
    Whitened,
    shifted,
    whitened_moments,
)
from curvflow.tasks.numerics.operators.base import BatchedOperator
from curvflow.tasks.numerics.operators.matrices import Explicit, explicit
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.registry import Machine

# Runs computed at once; a constant, so that sums keep their order.
BLOCK = 64


def _params(member: Member) -> LogdetParams:
    return cast("LogdetParams", member.params)


@dataclass(frozen=True)
class PreconditionedRuns:
    """Lanczos runs on P^-1/2 A P^-1/2 of each member.

    Attributes:
        ritz: Ritz data of the runs.
        preconditioner: P.
        rank: products or columns that P took; 0 of factors, which are given.
        floors: bounds that the eigenvalues of each member are above, or None.
        controls: control variates of each member, or None.
    """

    ritz: RitzData
    preconditioner: Preconditioner
    rank: int
    floors: Sequence[float | None]
    controls: Sequence[Controls | None]


def preconditioned_runs(
    members: Sequence[Member], machine: Machine
) -> PreconditionedRuns:
    """Precondition every member's operator by its leading part, and run Lanczos.

    Args:
        members: members with equal `batch_key`, with the inputs of an operator.
        machine: the device to compute on.

    Returns:
        The runs, their preconditioners and control variates.

    Raises:
        InputError: products are not finite, or cholesky is set for an operator without
            entries.
    """
    params = _params(members[0])
    columns = min(BLOCK, params.num_runs)
    operator: BatchedOperator = tile_operator(
        members, machine, columns=columns
    ).operator
    blocks = preconditioner_of(members, machine, operator.shape[1])
    if params.damping:
        operator = shifted(operator, params.damping)
    if blocks is not None:
        return _by_factors(members, operator, DampedBlocks(blocks, params.damping))
    entries = [_entries(member, machine) for member in members]
    if params.preconditioner == "nystrom" or None in entries:
        _check_preconditioner(params)
        preconditioner, entries = (
            _from_products(members, operator),
            [None] * len(members),
        )
    else:
        preconditioner = _from_columns(members, cast("list[Explicit]", entries))
    ritz, share_MS = _runs(members, operator, preconditioner, preconditioner.share)
    controls = [
        _controls(
            params,
            runs_of_model(ritz, m),
            preconditioner_of_model(preconditioner, m),
            share_MS[m],
            entries[m],
        )
        for m in range(len(members))
    ]
    rank, none = preconditioner.vectors.shape[2], [None] * len(members)
    return PreconditionedRuns(ritz, preconditioner, rank, none, controls)


def _by_factors(
    members: Sequence[Member], operator: BatchedOperator, by: DampedBlocks
) -> PreconditionedRuns:
    """Run Lanczos on an operator that its factors precondition."""
    ritz, _ = _runs(members, operator, by, lambda z_MDS: z_MDS[:, 0])
    largest = by.largest.tolist()
    floors = [
        _params(member).damping / most if is_semidefinite(member) else None
        for member, most in zip(members, largest, strict=False)
    ]
    return PreconditionedRuns(ritz, by, 0, floors, [None] * len(members))


def _runs(
    members: Sequence[Member],
    operator: BatchedOperator,
    by: Preconditioner,
    seen: Callable[[Tensor], Tensor],
) -> tuple[RitzData, Tensor]:
    """Return runs on P^-1/2 A P^-1/2, and what is seen of their unit vectors."""
    params, size = _params(members[0]), operator.shape[1]
    seeds = [_params(member).seed for member in members]
    white, parts, runs = Whitened(operator, by), [], []
    for start in range(0, params.num_runs, BLOCK):
        rows = range(start, min(start + BLOCK, params.num_runs))
        z_MDS = random_vectors(seeds, size, rows, params.distribution)
        z_MDS = (z_MDS / z_MDS.norm(dim=1, keepdim=True)).to(operator.device)
        parts.append(lanczos(white, z_MDS, num_steps=params.num_steps))
        runs.append(seen(z_MDS).cpu())
    return joined(parts), torch.cat(runs, dim=1)


def _check_preconditioner(params: LogdetParams) -> None:
    if params.preconditioner == "cholesky":
        raise InputError(
            "preconditioner: cholesky cannot be combined with an operator without "
            "entries. Take nystrom or auto."
        )


def runs_of_model(ritz: RitzData, number: int) -> RitzData:
    """Return the runs of one model, keeping the dimension of models."""
    chosen = slice(number, number + 1)
    return RitzData(
        ritz.values[chosen],
        ritz.weights[chosen],
        ritz.residuals[chosen],
        ritz.steps[chosen],
        ritz.size,
    )


def preconditioner_of_model(preconditioner: LowRank, number: int) -> LowRank:
    """Return the preconditioner of one model."""
    return preconditioner.select(
        torch.tensor([number], device=preconditioner.shift.device)
    )


def lower_bound(member: Member) -> float | None:
    """Return a known lower bound of the damped operator's eigenvalues, if there is one.

    Args:
        member: with the parameters operator, damping and floor.
    """
    params = _params(member)
    if params.floor is not None:
        return params.floor
    return params.damping if params.damping and is_semidefinite(member) else None


def _entries(member: Member, machine: Machine) -> Explicit | None:
    if MATRIX not in member.inputs:
        return None
    return explicit(data_operator(member, machine, torch.float64))


def _from_columns(members: Sequence[Member], entries: Sequence[Explicit]) -> LowRank:
    """Split the matrix into L L^T and a remainder of constant diagonal."""
    params = _params(members[0])
    least = lower_bound(members[0]) or 0.0
    # All columns leave nothing over, by which the remainder would be scaled.
    size = size_of(members[0])
    columns = min(params.rank, size if max(least, params.damping) else size - 1)
    parts_of_matrix: dict[int, tuple[Tensor, Tensor, float]] = {}
    for matrix, member in zip(entries, members, strict=True):
        node = id(member.one(MATRIX))
        if node not in parts_of_matrix:
            shift = max(0.0, least - params.damping)
            L_Dk, left_D = pivoted_cholesky(matrix, columns, shift=shift)
            U_Dk, root_k, _ = torch.linalg.svd(L_Dk, full_matrices=False)
            spread = max(least, params.damping) + float(left_D.mean())
            parts_of_matrix[node] = (U_Dk, root_k.square(), spread)
    parts = [parts_of_matrix[id(member.one(MATRIX))] for member in members]
    rank = min(part[0].shape[1] for part in parts)
    shifts = torch.tensor([part[2] for part in parts], dtype=torch.float64)
    if not (shifts > 0).all():
        raise InputError(
            "damping: expected a positive definite matrix, got one of which "
            f"{rank} columns leave nothing, of low rank or indefinite. Add damping, or "
            "take method slq, which tells its least eigenvalue."
        )
    vectors = torch.stack([part[0][:, :rank] for part in parts])
    values = torch.stack([part[1][:rank] for part in parts])
    return LowRank(vectors, values, shifts.to(values.device))


def _from_products(members: Sequence[Member], operator: BatchedOperator) -> LowRank:
    params = _params(members[0])
    size = operator.shape[1]
    columns = max(1, min(size, params.rank) // params.num_blocks)
    start_MDb = torch.stack([_block(_params(m).seed, size, columns) for m in members])
    vectors, values = nystrom(operator, start_MDb, num_blocks=params.num_blocks)
    least = lower_bound(members[0]) or 1e-15 * float(values.max())
    return LowRank(vectors, values, values.amin(1).clamp_min(least))


def _block(seed: int, size: int, columns: int) -> Tensor:
    generator = stream(seed, "nystrom")
    return torch.randn(size, columns, generator=generator, dtype=torch.float64)


def _controls(
    params: LogdetParams,
    ritz: RitzData,
    preconditioner: LowRank,
    share_S: Tensor,
    entries: Explicit | None,
) -> Controls:
    if entries is None or not (params.known_moments and hasattr(entries, "matrix")):
        rank = preconditioner.vectors.shape[2]
        mean = torch.tensor([rank / ritz.size], dtype=torch.float64)
        return Controls(share_S[:, None].double(), mean)
    matrix_DD = entries.dense().double()
    eye = torch.eye(ritz.size, dtype=torch.float64, device=matrix_DD.device)
    return moment_controls(
        ritz, *whitened_moments(matrix_DD + params.damping * eye, preconditioner)
    )


def preconditioned_bytes(member: Member) -> int:
    """Return the bytes of one member's preconditioner and of the bases of a block."""
    params, size = _params(member), size_of(member)
    bases = 8 * size * min(BLOCK, params.num_runs) * (params.num_steps + 6)
    return bases + (given_bytes(member) or 8 * size * 6 * params.rank)
