"""Directions of loss slices: eigenvectors, random or principal directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.landscape import LandscapeParams
from curvflow.schemas.nodes import Member
from curvflow.tasks.curvature.network_operators import problem_of
from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.numerics.derivatives.slices import (
    filter_normalised,
    principal,
    signed,
)
from curvflow.tasks.numerics.krylov.power_iteration import block_power
from curvflow.tasks.numerics.operators.base import BatchedOperator
from curvflow.tasks.numerics.streams import stream


@dataclass(frozen=True)
class Directions:
    """Directions of the slices of M models.

    Attributes:
        columns: directions d of each model, (M, D, K).
        converged: the eigenvector converged, or the direction needs no iteration,
            (M, K).
        path: coordinates of C checkpoints along the directions, (M, C, K); C may be 0.
        explained: fraction of the checkpoints' squared distances, (M, K).
        num_matvecs: matrix-vector products spent, per model.
    """

    columns: Tensor
    converged: Tensor
    path: Tensor
    explained: Tensor
    num_matvecs: Sequence[int]


def _params(member: Member) -> LandscapeParams:
    return cast("LandscapeParams", member.params)


def moved_tensors(member: Member) -> tuple[str, ...]:
    """Return the names of the parameter tensors that directions move.

    Raises:
        InputError: `layers` names no tensor.
    """
    return problem_of(member).network.layout.matching(_params(member).layers)


def moved_entries(problem: Problem, patterns: Sequence[str] | None) -> Tensor:
    """Return which parameters are those of the tensors that patterns name, (D,)."""
    layout = problem.network.layout
    names = layout.matching(patterns)
    is_named = torch.tensor([name in names for name in layout.names])
    return is_named.repeat_interleave(torch.tensor(layout.sizes))


def columns_at_once(member: Member) -> int:
    """Return the number of vectors multiplied at once."""
    params, count = _params(member), _params(member).num_directions
    size = problem_of(member).network.layout.only(moved_tensors(member)).size
    wider = params.oversampling if params.directions == "eigenvectors" else 0
    return min(size, count + wider)


def directions(
    members: Sequence[Member],
    hessian: BatchedOperator,
    problem: Problem,
    weights_MD: Tensor,
) -> Directions:
    """Find the directions that the parameters specify.

    Args:
        members: members with `LandscapeParams`, and `trajectory` or `eigen` where the
            directions come from there.
        hessian: the Hessians of all members, of the tensors that move.
        problem: the network and loss of the members.
        weights_MD: the weights, whose filters give random directions their lengths.

    Returns:
        The directions.

    Raises:
        InputError: there are fewer directions than requested, or all are zero.
    """
    params, count = _params(members[0]), _params(members[0]).num_directions
    if count > hessian.shape[1]:
        raise InputError(
            f"num_directions: expected at most the {hessian.shape[1]} parameters, "
            f"got {count}. Lower it."
        )
    if params.directions == "trajectory":
        return _principal(members, weights_MD, count)
    if params.directions == "stored":
        return _stored(members, weights_MD, count)
    if params.directions == "eigenvectors":
        pairs = _eigenvectors(members, hessian, count)
        if params.layers is None:
            return pairs
        moved_D = moved_entries(problem, params.layers)
        columns_MDK = pairs.columns.new_zeros(*weights_MD.shape, count)
        columns_MDK[:, moved_D] = pairs.columns
        return replace(pairs, columns=columns_MDK)
    return _random(members, problem, weights_MD, count)


def _random(
    members: Sequence[Member], problem: Problem, weights_MD: Tensor, count: int
) -> Directions:
    size, params = weights_MD.shape[1], _params(members[0])
    draws_MDK = torch.stack(
        [_drawn(_params(m).seed, size, count, "slices") for m in members]
    ).to(weights_MD)
    shapes = problem.network.layout.shapes
    columns_MDK = filter_normalised(draws_MDK, weights_MD, shapes, biases=params.biases)
    if params.layers is not None:
        moved_DK = _moved_by_each(problem, params).to(columns_MDK.device)
        columns_MDK = columns_MDK.where(moved_DK, 0)
    if not (columns_MDK != 0).any(1).all():
        raise InputError(
            "directions: expected weights with non-zero filters, got zero filters "
            "alone. Set biases, or take eigenvectors."
        )
    return _plain(columns_MDK, [0] * len(members))


def _moved_by_each(problem: Problem, params: LandscapeParams) -> Tensor:
    """Return which parameters each direction moves, (D, K) or (D, 1)."""
    if not params.layer_each:
        return moved_entries(problem, params.layers).unsqueeze(1)
    return torch.stack(
        [moved_entries(problem, [pattern]) for pattern in params.layers or ()], dim=1
    )


def _eigenvectors(
    members: Sequence[Member], hessian: BatchedOperator, count: int
) -> Directions:
    params, columns = _params(members[0]), columns_at_once(members[0])
    size = hessian.shape[1]
    start_MDB = torch.stack(
        [_drawn(_params(m).seed, size, columns, "block") for m in members]
    ).to(hessian.device, hessian.dtype)
    ritz = block_power(
        hessian,
        start_MDB,
        k=count,
        tol=params.tol,
        max_iterations=params.max_iterations,
    )
    spent = [int(iterations) * columns for iterations in ritz.iterations]
    return _plain(signed(ritz.vectors), spent, ritz.converged)


def _stored(members: Sequence[Member], weights_MD: Tensor, count: int) -> Directions:
    eigen_nodes = [member.one("eigen") for member in members]
    shapes = {
        eigen["eigenvectors"].shape for eigen in eigen_nodes if "eigenvectors" in eigen
    }
    if len(shapes) != 1 or not all("eigenvectors" in eigen for eigen in eigen_nodes):
        raise InputError(
            "eigen: expected stored eigenvectors, got none. Set eigenvectors: true in "
            "probe.eigenvalues."
        )
    ((ranks, size),) = shapes
    if ranks < count or size != weights_MD.shape[1]:
        raise InputError(
            f"eigen: expected {count} eigenvectors of {weights_MD.shape[1]} "
            f"parameters, got {ranks} of {size}. Raise its k, or lower num_directions."
        )
    rows_MKD = np.stack([eigen["eigenvectors"][:count] for eigen in eigen_nodes])
    columns_MDK = torch.as_tensor(rows_MKD).to(weights_MD).mT
    converged_MK = torch.as_tensor(
        np.stack([eigen["converged"] for eigen in eigen_nodes])
    )
    return _plain(signed(columns_MDK), [0] * len(members), converged_MK[:, :count])


def _principal(members: Sequence[Member], weights_MD: Tensor, count: int) -> Directions:
    kept_MCW = np.stack([m.one("trajectory")["weights"] for m in members])
    if not np.isfinite(kept_MCW).all():
        raise InputError(
            "trajectory: expected finite weights at every checkpoint, got NaN. Take a "
            "training that has not diverged."
        )
    kept_MCD = torch.as_tensor(kept_MCW)[..., : weights_MD.shape[1]].to(weights_MD)
    moves_MCD = kept_MCD - weights_MD.unsqueeze(1)
    units_MDK, shares_MK = principal(moves_MCD, count)
    steps_MCK = moves_MCD @ units_MDK
    places_M1K = steps_MCK.abs().argmax(dim=1, keepdim=True)
    farthest_M1K = steps_MCK.gather(1, places_M1K)
    return Directions(
        units_MDK * farthest_M1K,
        torch.ones_like(shares_MK, dtype=torch.bool),
        steps_MCK / farthest_M1K,
        shares_MK,
        [0] * len(members),
    )


def _plain(
    columns_MDK: Tensor, spent: Sequence[int], converged_MK: Tensor | None = None
) -> Directions:
    models, _, count = columns_MDK.shape
    nothing_MK = columns_MDK.new_full((models, count), torch.nan)
    if converged_MK is None:
        converged_MK = torch.ones_like(nothing_MK, dtype=torch.bool)
    no_path_MCK = columns_MDK.new_empty(models, 0, count)
    return Directions(columns_MDK, converged_MK, no_path_MCK, nothing_MK, spent)


def _drawn(seed: int, size: int, count: int, purpose: str) -> Tensor:
    generator = stream(seed, purpose)
    return torch.randn(size, count, generator=generator, dtype=torch.float64)
