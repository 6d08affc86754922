"""Ritz data of the members of a tile, stored by another probe or computed now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.operators import (
    DOUBLINGS,
    LanczosParams,
    OperatorParams,
    RefinedParams,
)
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.curvature import operators
from curvflow.tasks.numerics.estimators.traces import random_vectors
from curvflow.tasks.numerics.krylov.functionals import Bounded
from curvflow.tasks.numerics.krylov.lanczos import RitzData, joined, lanczos
from curvflow.tasks.registry import Machine

RITZ = "ritz"

# Bytes that one model's bases may take: as many runs as fit are computed at once. It
# sets the composition of blocks, so it must not depend on the machine.
BASIS_BYTES = 1 << 27
MOST_RUNS = 16


def _params(member: Member) -> LanczosParams:
    return cast("LanczosParams", member.params)


def has_stored(member: Member) -> bool:
    """Return whether a member takes stored Ritz data instead of an operator."""
    return RITZ in member.inputs


def batch_key(member: Member) -> object:
    """Return the key that members of one batch share."""
    if has_stored(member):
        node = member.one(RITZ)
        return node["ritz_values"].shape, int(node["size"])
    return operators.batch_key(member)


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: bases, products, data."""
    if has_stored(member):
        return 16 * member.one(RITZ)["ritz_values"].nbytes + (1 << 20)
    params, size = _params(member), operators.size_of(member)
    doubled = DOUBLINGS if _rel_error(member) is not None else 0
    peaks = []
    for steps in {params.num_steps, params.num_steps << doubled}:
        runs = _runs_at_once(member, steps)
        # The start vectors stay in memory with the basis and its next row.
        bases = runs * (_basis_bytes(member, steps) + 2 * 8 * size)
        peaks.append(operators.product_bytes(member, runs) + bases)
    return max(peaks)


def data_bytes(member: Member) -> int:
    """Return the part of `member_bytes` that members with the same data share."""
    return 0 if has_stored(member) else operators.shared_bytes(member)


def _basis_bytes(member: Member, num_steps: int) -> int:
    size = operators.size_of(member)
    return _item(member) * size * min(size, num_steps)


def _rel_error(member: Member) -> float | None:
    params = member.params
    return params.rel_error if isinstance(params, RefinedParams) else None


def _item(member: Member) -> int:
    # A basis is of the precision of the products.
    dtype: torch.dtype = getattr(torch, _params(member).dtype)
    return dtype.itemsize


def _runs_at_once(member: Member, num_steps: int) -> int:
    most = max(1, BASIS_BYTES // _basis_bytes(member, num_steps))
    return min(most, MOST_RUNS, _params(member).num_runs)


def ritz_data(members: Sequence[Member], machine: Machine) -> RitzData:
    """Return the Ritz data of all members, without a product where they are stored.

    Args:
        members: members with equal `batch_key`, with `ritz` or inputs of an operator.
        machine: the device to compute on.

    Returns:
        One run for each random vector of each member.

    Raises:
        InputError: weights or products hold NaN or infinity, or parameters of an
            operator are combined with Ritz data.
    """
    if has_stored(members[0]):
        return stored(members)
    params = _params(members[0])
    block = _runs_at_once(members[0], params.num_steps)
    tile_operator = operators.tile_operator(members, machine, columns=block)
    seeds = [_params(member).seed for member in members]
    parts = []
    for start in range(0, params.num_runs, block):
        rows = range(start, min(start + block, params.num_runs))
        vectors = random_vectors(
            seeds, tile_operator.operator.shape[1], rows, params.distribution
        )
        parts.append(
            lanczos(tile_operator.operator, vectors, num_steps=params.num_steps)
        )
    return joined(parts)


def stored(members: Sequence[Member]) -> RitzData:
    """Return Ritz data that another probe has stored.

    Args:
        members: with `ritz`, of equal shapes.

    Returns:
        The same runs.

    Raises:
        InputError: parameters of an operator are combined with them.
    """
    params = cast("OperatorParams", members[0].params)
    if params.operator != "hessian" or params.layers:
        raise InputError(
            f"operator: {params.operator} with layers {params.layers} cannot be "
            "combined with stored Ritz data. Set them in the probe.spectrum that "
            "stores it."
        )
    nodes = [member.one(RITZ) for member in members]
    values, weights, residuals = (
        torch.as_tensor(np.stack([node[f"ritz_{name}"] for node in nodes]))
        for name in ("values", "weights", "residuals")
    )
    steps = values.isfinite().sum(2)
    return RitzData(values, weights, residuals, steps, int(nodes[0]["size"]))


def num_products(member: Member, ritz: RitzData, number: int) -> Array:
    """Return the number of products computed now for one member.

    Args:
        member: the member.
        ritz: Ritz data of the batch.
        number: position of the member in the batch.
    """
    count = 0 if has_stored(member) else int(ritz.steps[number].sum())
    return np.array(count, dtype=np.int64)


# Matrices without negative eigenvalues, as each named loss is convex in the outputs.
SEMIDEFINITE = (
    "ggn",
    "fisher_type2",
    "fisher_mc",
    "fisher_empirical",
    "gradient_covariance",
)


def floor_of(member: Member) -> float | None:
    """Return what the eigenvalues of a member's operator cannot be below, if known.

    Args:
        member: of stored Ritz data, or of a matrix, nothing is known.
    """
    if has_stored(member) or operators.MATRIX in member.inputs:
        return None
    return 0.0 if _params(member).operator in SEMIDEFINITE else None


def until_resolved(
    members: Sequence[Member],
    compute: Callable[[Sequence[Member]], Sequence[tuple[Outcome, bool]]],
) -> list[Outcome]:
    """Compute members, and those that are not resolved again with twice the steps.

    Without `rel_error`, and of stored Ritz data, all are computed once.

    Args:
        members: with equal `batch_key`.
        compute: from members to their outcomes, with `num_matvecs`, and to whether the
            quadrature of each is accurate enough.

    Returns:
        The last outcome of each; its work is that of all its runs.
    """
    outcomes: dict[int, Outcome] = {}
    left = dict(enumerate(members))
    for doubling in range(1 + DOUBLINGS):
        several = [*left.values()] * (2 if len(left) == 1 < len(members) else 1)
        resolved = []
        for number, (outcome, is_resolved) in zip(left, compute(several), strict=False):
            if number in outcomes:
                earlier = outcomes[number].arrays["num_matvecs"]
                work = {"num_matvecs": outcome.arrays["num_matvecs"] + earlier}
                outcome = replace(outcome, arrays={**outcome.arrays, **work})
            outcomes[number] = outcome
            if is_resolved or doubling == DOUBLINGS or not _may_refine(left[number]):
                resolved.append(number)
        left = {n: _longer(member) for n, member in left.items() if n not in resolved}
        if not left:
            break
    return [outcomes[number] for number in range(len(members))]


def _may_refine(member: Member) -> bool:
    if has_stored(member) or _rel_error(member) is None:
        return False
    return _params(member).num_steps < operators.size_of(member)


def _longer(member: Member) -> Member:
    params = _params(member)
    steps = {"num_steps": 2 * params.num_steps}
    return replace(member, params=params.model_copy(update=steps))


def functional_arrays(
    name: str,
    found: Bounded,
    steps: Tensor | None = None,
    *,
    relative: float | None = None,
    flag: str = "converged",
) -> dict[str, Array]:
    """Return the variables that `judged` declares, of one member.

    Args:
        name: of the value.
        found: of one member, with any dimensions before that of the runs.
        steps: that bring the quadrature within the error, of the same dimensions; None
            if they are not known.
        relative: error of the quadrature that is enough; None as `converged` has it.
        flag: name of the variable that says whether the quadrature has converged.
    """
    low, high = found.interval()
    converged = found.converged(relative)
    arrays: dict[str, Array] = {
        name: found.estimate.mean.numpy(),
        f"{name}_sem": found.total.numpy(),
        f"{name}_vectors": found.estimate.sem.numpy(),
        f"{name}_quadrature": found.rule_error.numpy(),
        f"{name}_low": low.numpy(),
        f"{name}_high": high.numpy(),
        flag: converged.numpy(),
    }
    return arrays if steps is None else {**arrays, "steps_needed": steps.numpy()}
