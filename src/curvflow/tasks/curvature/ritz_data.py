"""Ritz data of the members of a tile, stored by another probe or computed now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.densities.spectrum import SpectrumParams
from curvflow.schemas.kinds.probes.logdet import LogdetParams
from curvflow.schemas.kinds.shared.operators import (
    DOUBLINGS,
    LanczosParams,
    OperatorParams,
    RefinedParams,
)
from curvflow.schemas.nodes import Array, Member, NodeData, Outcome
from curvflow.tasks.curvature import operators
from curvflow.tasks.numerics.estimators.traces import random_vectors
from curvflow.tasks.numerics.krylov.functionals import Bounded
from curvflow.tasks.numerics.krylov.lanczos import (
    ROWS,
    LanczosRuns,
    Reorthogonalize,
    RitzData,
    joined,
)
from curvflow.tasks.numerics.operators.deflation import Atoms
from curvflow.tasks.registry import Machine

RITZ = "ritz"

# Bytes that one model's bases may take: as many runs as fit are computed at once. It
# sets the composition of blocks, so it must not depend on the machine.
BASIS_BYTES = 1 << 27
MOST_RUNS = 16

# Tridiagonal and bordered matrices, and their eigenvectors, held at once for each run.
SMALL = 3


def _params(member: Member) -> LanczosParams:
    return cast("LanczosParams", member.params)


def has_stored(member: Member) -> bool:
    """Return whether a member takes stored Ritz data, of which factors are some."""
    return RITZ in member.inputs or operators.FACTORS in member.inputs


def stored_node(member: Member) -> NodeData:
    """Return the stored Ritz data that a member takes."""
    return member.one(RITZ if RITZ in member.inputs else operators.FACTORS)


def batch_key(member: Member) -> object:
    """Return the key that members of one batch share."""
    if has_stored(member):
        node = stored_node(member)
        return node["ritz_values"].shape, int(node["size"])
    return operators.batch_key(member)


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: bases, products, data."""
    if has_stored(member):
        return 16 * stored_node(member)["ritz_values"].nbytes + (1 << 20)
    params, size = _params(member), operators.size_of(member)
    doubled = _doublings(member)
    peaks = []
    for steps in {params.num_steps, params.num_steps << doubled}:
        runs = _runs_at_once(member, steps)
        small = SMALL * 8 * params.num_runs * min(size, steps) ** 2
        if _is_in_place(member):
            peaks.append(data_bytes(member) + max(ROWS * 8 * size * runs, small))
            continue
        # The start vectors stay in memory with the basis and its next row; those of
        # runs that are continued with the basis before.
        bases = runs * (_basis_bytes(member, steps) + 2 * 8 * size)
        bases = 2 * bases if doubled else bases
        products = operators.product_bytes(member, runs)
        peaks.append(bases + max(products, data_bytes(member) + small))
    return max(peaks)


def data_bytes(member: Member) -> int:
    """Return the part of `member_bytes` that members with the same data share."""
    return 0 if has_stored(member) else operators.shared_bytes(member)


def _reorthogonalize(member: Member) -> Reorthogonalize:
    params = member.params
    if isinstance(params, SpectrumParams | LogdetParams):
        return params.reorthogonalize
    return "full"


def _is_in_place(member: Member) -> bool:
    """Return whether runs hold their vectors and no more."""
    return _reorthogonalize(member) == "none" and operators.is_plain_graph(member)


def _basis_bytes(member: Member, num_steps: int) -> int:
    """Return the bytes of a run's vectors but one."""
    size = operators.size_of(member)
    rows = min(size, num_steps)
    if _reorthogonalize(member) == "none":
        rows = ROWS - 1
    return _item(member) * size * rows


def _doublings(member: Member) -> int:
    """Return how often the steps may be doubled."""
    params = member.params
    asks = isinstance(params, RefinedParams) and params.rel_error is not None
    return DOUBLINGS if asks else 0


def _item(member: Member) -> int:
    # A basis is of the precision of the products.
    dtype: torch.dtype = getattr(torch, _params(member).dtype)
    return dtype.itemsize


def _runs_at_once(member: Member, num_steps: int) -> int:
    if _is_in_place(member):
        return operators.block_of(member, min(MOST_RUNS, _params(member).num_runs))
    most = max(1, BASIS_BYTES // _basis_bytes(member, num_steps))
    return min(most, MOST_RUNS, _params(member).num_runs)


def ritz_data(members: Sequence[Member], machine: Machine) -> tuple[RitzData, Atoms]:
    """Return the Ritz data of all members, and eigenvalues taken out before.

    Args:
        members: members with equal `batch_key`, with inputs of an operator.
        machine: the device to compute on.

    Returns:
        One run for each random vector of each member, on what `deflate` leaves, and
        the atoms that it takes out, none without it.

    Raises:
        InputError: weights or products hold NaN or infinity.
    """
    runs = _Runs(members, machine)
    return runs.ritz(_params(members[0]).num_steps), runs.atoms


class _Runs:
    """The runs of members, some at a time; they are continued where all fit at once."""

    def __init__(self, members: Sequence[Member], machine: Machine) -> None:
        self._first, self._params = members[0], _params(members[0])
        self._seeds = [_params(member).seed for member in members]
        most = self._params.num_steps << _doublings(self._first)
        self.is_held = _runs_at_once(self._first, most) >= self._params.num_runs
        self._held: LanczosRuns | None = None
        block = _runs_at_once(self._first, self._params.num_steps)
        tile = operators.tile_operator(members, machine, columns=block)
        self._operator, self.atoms = tile.operator, tile.atoms

    def ritz(self, num_steps: int) -> RitzData:
        """Return the data of so many steps, at least as many as before."""
        if self.is_held:
            self._held = self._held or self._begun(range(self._params.num_runs))
            return self._held.extended(num_steps)
        total, block = self._params.num_runs, _runs_at_once(self._first, num_steps)
        rows = [
            range(start, min(start + block, total)) for start in range(0, total, block)
        ]
        return joined([self._begun(part).extended(num_steps) for part in rows])

    def select(self, models: Sequence[int]) -> None:
        """Keep some of the members, by their numbers."""
        self._seeds = [self._seeds[model] for model in models]
        if self._held:
            self._held.select(torch.tensor(models))
        else:
            self._operator = self._operator.select(
                torch.tensor(models, device=self._operator.device)
            )

    def _begun(self, rows: range) -> LanczosRuns:
        size, law = self._operator.shape[1], self._params.distribution
        start_MDS = random_vectors(self._seeds, size, rows, law)
        return LanczosRuns(
            self._operator, start_MDS, reorthogonalize=_reorthogonalize(self._first)
        )


def stored(members: Sequence[Member]) -> RitzData:
    """Return Ritz data that another probe has stored.

    Args:
        members: with `ritz`, of equal shapes.

    Returns:
        The same runs.

    Raises:
        InputError: parameters of an operator are combined with them, or eigenvalues
            have been taken out of them.
    """
    params = cast("OperatorParams", members[0].params)
    if params.operator != "hessian" or params.layers:
        raise InputError(
            f"operator: {params.operator} with layers {params.layers} cannot be "
            "combined with stored Ritz data. Set them in the probe.spectrum that "
            "stores it."
        )
    if any("atom_values" in stored_node(member) for member in members):
        raise InputError(
            "ritz: expected Ritz data of all eigenvalues, got some that deflate has "
            "taken atoms out of. Remove deflate."
        )
    return without_atoms(members)


def without_atoms(members: Sequence[Member]) -> RitzData:
    """Return stored Ritz data, of the eigenvalues that were not taken out.

    Args:
        members: with `ritz`, of equal shapes and sizes.
    """
    nodes = [stored_node(member) for member in members]
    values, weights, residuals = (
        torch.as_tensor(np.stack([node[f"ritz_{name}"] for node in nodes]))
        for name in ("values", "weights", "residuals")
    )
    steps = values.isfinite().sum(2)
    size = int(nodes[0]["size"]) - operators.atoms_of(nodes[0]).total
    has_copies = not all(node.arrays.get("reorthogonalized", True) for node in nodes)
    return RitzData(values, weights, residuals, steps, size, has_copies=has_copies)


def num_products(member: Member, ritz: RitzData, number: int) -> Array:
    """Return the number of products computed now for one member.

    Args:
        member: the member.
        ritz: Ritz data of the batch.
        number: position of the member in the batch.
    """
    count = 0 if has_stored(member) else int(ritz.steps[number].sum())
    return np.array(count, dtype=np.int64)


def floor_of(member: Member) -> float | None:
    """Return what the eigenvalues of a member's operator cannot be below, if known.

    Args:
        member: of stored Ritz data, or of a matrix, nothing is known.
    """
    if has_stored(member) or operators.MATRIX in member.inputs:
        return None
    return 0.0 if operators.is_semidefinite(member) else None


def until_resolved(
    members: Sequence[Member],
    machine: Machine,
    judge: Callable[[Sequence[Member], RitzData], Sequence[tuple[Outcome, bool]]],
) -> list[Outcome]:
    """Judge members by their Ritz data, and those not resolved by twice the steps.

    Runs are continued where their bases fit, else begun again. Without `rel_error`,
    and of stored Ritz data, all are judged once.

    Args:
        members: with equal `batch_key`.
        machine: the device to compute on.
        judge: from members and their data to outcomes, with `num_matvecs`, and to
            whether the quadrature of each is accurate enough.

    Returns:
        The last outcome of each; its work is that of all its runs.
    """
    if has_stored(members[0]):
        return [outcome for outcome, _ in judge(members, stored(members))]
    runs, steps = _Runs(members, machine), _params(members[0]).num_steps
    most = min(steps << _doublings(members[0]), operators.size_of(members[0]))
    outcomes: dict[int, Outcome] = {}
    numbers = list(range(len(members)))
    while True:
        judged = judge([members[number] for number in numbers], runs.ritz(steps))
        wasted = {} if runs.is_held else dict(outcomes)
        for number, (outcome, _) in zip(numbers, judged, strict=True):
            outcomes[number] = _with_work(outcome, wasted.get(number))
        going = [
            index for index, (_, is_resolved) in enumerate(judged) if not is_resolved
        ]
        if not going or steps >= most:
            return [outcomes[number] for number in range(len(members))]
        if len({numbers[index] for index in going}) == 1 < len(members):
            going = going[:1] * 2  # a model alone is computed with a copy of itself
        if len(going) < len(numbers):
            runs.select(going)
        numbers, steps = [numbers[index] for index in going], 2 * steps


def _with_work(outcome: Outcome, wasted: Outcome | None) -> Outcome:
    """Add the products of an earlier outcome."""
    if wasted is None:
        return outcome
    work = outcome.arrays["num_matvecs"] + wasted.arrays["num_matvecs"]
    return replace(outcome, arrays={**outcome.arrays, "num_matvecs": work})


def functional_arrays(
    name: str,
    bounded: Bounded,
    steps: Tensor | None = None,
    *,
    relative: float | None = None,
    flag: str = "converged",
) -> dict[str, Array]:
    """Return the variables that `judged` declares, of one member.

    Args:
        name: of the value.
        bounded: of one member, with any dimensions before that of the runs.
        steps: that bring the quadrature within the error, of the same dimensions; None
            if they are not known.
        relative: error of the quadrature that is enough; None as `converged` has it.
        flag: name of the variable that says whether the quadrature has converged.
    """
    low, high = bounded.interval()
    converged = bounded.converged(relative)
    arrays: dict[str, Array] = {
        name: bounded.estimate.mean.numpy(),
        f"{name}_sem": bounded.total.numpy(),
        f"{name}_vectors": bounded.estimate.sem.numpy(),
        f"{name}_quadrature": bounded.rule_error.numpy(),
        f"{name}_low": low.numpy(),
        f"{name}_high": high.numpy(),
        flag: converged.numpy(),
    }
    return arrays if steps is None else {**arrays, "steps_needed": steps.numpy()}
