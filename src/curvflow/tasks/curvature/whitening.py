"""From the members of a tile to their operators, preconditioned, and Lanczos runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.logdet import LogdetParams
from curvflow.schemas.nodes import Member
from curvflow.tasks.curvature.operators import MATRIX, matrix_operator, size_of, subject
from curvflow.tasks.numerics.estimators.logdets import Controls, moment_controls
from curvflow.tasks.numerics.estimators.traces import random_vectors
from curvflow.tasks.numerics.krylov.lanczos import RitzData, joined, lanczos
from curvflow.tasks.numerics.krylov.low_rank import nystrom, pivoted_cholesky
from curvflow.tasks.numerics.operators.algebra import (
    LowRank,
    Whitened,
    shifted,
    whitened_moments,
)
from curvflow.tasks.numerics.operators.base import BatchedOperator
from curvflow.tasks.numerics.operators.matrices import Explicit, explicit
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.registry import Machine

# Runs made at once; a constant, so that sums keep their order.
BLOCK = 64


def _params(member: Member) -> LogdetParams:
    return cast("LogdetParams", member.params)


@dataclass(frozen=True)
class Prepared:
    """Runs on P^-1/2 A P^-1/2 of each member.

    Attributes:
        ritz: the runs.
        by: P.
        controls: of each member.
    """

    ritz: RitzData
    by: LowRank
    controls: list[Controls]


def prepared(members: Sequence[Member], machine: Machine) -> Prepared:
    """Find the leading part of every member's operator, divide by it, and run Lanczos.

    Args:
        members: alike, with what makes an operator.
        machine: where to compute.

    Returns:
        The runs and what belongs to them.

    Raises:
        InputError: products are not finite, or cholesky is asked of an operator that
            has no entries.
    """
    params = _params(members[0])
    columns = min(BLOCK, params.num_runs)
    operator: BatchedOperator = subject(members, machine, columns=columns).operator
    entries = [_entries(member, machine) for member in members]
    if params.damping:
        operator = shifted(operator, params.damping)
    if params.preconditioner == "nystrom" or None in entries:
        _check_wanted(params)
        by, entries = _from_products(members, operator), [None] * len(members)
    else:
        by = _from_columns(members, cast("list[Explicit]", entries))
    size, seeds = operator.shape[1], [_params(member).seed for member in members]
    white, parts, shares = Whitened(operator, by), [], []
    for start in range(0, params.num_runs, BLOCK):
        rows = range(start, min(start + BLOCK, params.num_runs))
        z_MDS = random_vectors(seeds, size, rows, params.distribution)
        z_MDS = (z_MDS / z_MDS.norm(dim=1, keepdim=True)).to(operator.device)
        parts.append(lanczos(white, z_MDS, num_steps=params.num_steps))
        shares.append(by.share(z_MDS).cpu())
    ritz, share_MS = joined(parts), torch.cat(shares, dim=1)
    controls = [
        _controls(params, one(ritz, m), one_of(by, m), share_MS[m], entries[m])
        for m in range(len(members))
    ]
    return Prepared(ritz, by, controls)


def _check_wanted(params: LogdetParams) -> None:
    if params.preconditioner == "cholesky":
        raise InputError(
            "preconditioner: expected nystrom for an operator without entries, got "
            "cholesky. Take nystrom or auto."
        )


def one(ritz: RitzData, number: int) -> RitzData:
    """Return the runs of one model alone, with the dimension of models kept."""
    chosen = slice(number, number + 1)
    return RitzData(
        ritz.values[chosen],
        ritz.weights[chosen],
        ritz.residuals[chosen],
        ritz.steps[chosen],
        ritz.size,
    )


def one_of(by: LowRank, number: int) -> LowRank:
    """Return the preconditioner of one model alone."""
    return by.select(torch.tensor([number], device=by.shift.device))


def lower_bound(params: LogdetParams) -> float | None:
    """Return what the damped operator's eigenvalues are known to be above, if anything.

    Args:
        params: whose operator tells whether it has negative eigenvalues.
    """
    if params.floor is not None:
        return params.floor
    indefinite = params.operator in ("hessian", "residual")
    return params.damping if params.damping and not indefinite else None


def _entries(member: Member, machine: Machine) -> Explicit | None:
    if MATRIX not in member.inputs:
        return None
    matrix = member.one(MATRIX)
    return explicit(matrix_operator(matrix, machine, torch.float64))


def _from_columns(members: Sequence[Member], entries: Sequence[Explicit]) -> LowRank:
    """Divide the matrix into L L^T and what is left, spread evenly."""
    params = _params(members[0])
    least = lower_bound(params) or 0.0
    found: dict[int, tuple[Tensor, Tensor, float]] = {}
    for matrix, member in zip(entries, members, strict=True):
        node = id(member.one(MATRIX))
        if node not in found:
            shift = max(0.0, least - params.damping)
            L_Dk, left_D = pivoted_cholesky(matrix, params.rank, shift=shift)
            U_Dk, root_k, _ = torch.linalg.svd(L_Dk, full_matrices=False)
            spread = max(least, params.damping) + float(left_D.mean())
            found[node] = (U_Dk, root_k.square(), spread)
    parts = [found[id(member.one(MATRIX))] for member in members]
    rank = min(part[0].shape[1] for part in parts)
    shifts = torch.tensor([part[2] for part in parts], dtype=torch.float64)
    if not (shifts > 0).all():
        raise InputError(
            "damping: expected a matrix that is positive definite, got one of rank "
            f"{rank}. Add damping, or say floor."
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
    least = lower_bound(params) or 1e-15 * float(values.max())
    return LowRank(vectors, values, values.amin(1).clamp_min(least))


def _block(seed: int, size: int, columns: int) -> Tensor:
    generator = stream(seed, "nystrom")
    return torch.randn(size, columns, generator=generator, dtype=torch.float64)


def _controls(
    params: LogdetParams,
    ritz: RitzData,
    by: LowRank,
    share_S: Tensor,
    entries: Explicit | None,
) -> Controls:
    if entries is None or not (params.known_moments and hasattr(entries, "matrix")):
        rank = by.vectors.shape[2]
        mean = torch.tensor([rank / ritz.size], dtype=torch.float64)
        return Controls(share_S[:, None].double(), mean)
    matrix_DD = entries.dense().double()
    eye = torch.eye(ritz.size, dtype=torch.float64, device=matrix_DD.device)
    return moment_controls(
        ritz, *whitened_moments(matrix_DD + params.damping * eye, by)
    )


def prepared_bytes(member: Member) -> int:
    """Return the bytes of one member's preconditioner and of a block's bases."""
    params, size = _params(member), size_of(member)
    runs = min(BLOCK, params.num_runs)
    return 8 * size * (6 * params.rank + runs * (params.num_steps + 6))
