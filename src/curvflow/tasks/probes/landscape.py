"""Loss landscape: slices along lines and in a plane, with a quadratic model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.schemas.kinds.probes.landscape import ABOUT_ZERO, LandscapeParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.curvature.directions import (
    Directions,
    columns_at_once,
    directions,
    moved_entries,
    moved_tensors,
)
from curvflow.tasks.curvature.network_operators import (
    batch_draws,
    batched_hessian,
    problem_key,
    problem_of,
    rows_together,
    stacked_weights,
)
from curvflow.tasks.networks.problems import (
    Problem,
    Samples,
    grouped,
    load_samples,
    probed_bytes,
)
from curvflow.tasks.numerics.derivatives.precision import full_precision
from curvflow.tasks.numerics.derivatives.slices import (
    LocalModel,
    along,
    line_points,
    local_model,
    mean_gradient,
    plane_points,
)
from curvflow.tasks.numerics.operators.base import BatchedOperator
from curvflow.tasks.registry import Machine, computes
from curvflow.tasks.training.batch_draws import BatchDraws
from curvflow.tasks.training.curves import Evaluation

SETS = {"train": "", "test": "test_"}
NAMES = {"eigenvectors": "eigenvector", "stored": "eigenvector"}

# Bytes of the weights of one pass of points.
POINT_BYTES = 1 << 25


def _params(member: Member) -> LandscapeParams:
    return cast("LandscapeParams", member.params)


def _points_per_pass(problem: Problem) -> int:
    return max(2, POINT_BYTES // (8 * problem.network.num_parameters))


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: products, blocks, points, data."""
    problem, columns = problem_of(member), columns_at_once(member)
    params, size = _params(member), problem.network.num_parameters
    points = params.num_points * max(params.num_directions, params.num_points)
    points_held = min(points, _points_per_pass(problem))
    trajectory_bytes = 0
    if "trajectory" in member.inputs:
        trajectory_bytes = 3 * member.one("trajectory")["weights"].nbytes
    vectors = 8 * size * (8 * columns + 2 * points_held)
    rows = rows_together(member, params)
    products = problem.product_bytes(member.one("data"), columns, rows=rows)
    return products + vectors + trajectory_bytes


@computes("probe.landscape", member_bytes=member_bytes, data_bytes=probed_bytes)
def landscape(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Evaluate the loss along directions, with its quadratic model at the weights.

    Statistics of batch norms stay as stored; in mode train those of the training
    samples are of each batch, and random numbers the same at all points.

    Args:
        members: `weights`, `data` and, for their directions, `trajectory` or `eigen`;
            parameters differ in the seed.
        machine: the device to compute on.

    Returns:
        Per member losses and accuracies on the slices, slopes and curvatures.

    Raises:
        InputError: there are fewer directions than requested, or weights or products
            hold NaN or infinity.

    Reference:
        Li, Xu, Taylor, Studer and Goldstein (2018), arXiv:1712.09913, sections 4 and 7.
    """
    return grouped(members, _group_key, partial(_together, machine=machine))


def _group_key(member: Member) -> object:
    shape_sources = {"trajectory": "weights", "eigen": "eigenvectors"}
    shapes = [
        node[array].shape
        for name, array in shape_sources.items()
        for node in member.inputs.get(name, ())
        if array in node
    ]
    return problem_key(member), tuple(shapes)


def _together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    params, problem = _params(members[0]), problem_of(members[0])
    given_MW = stacked_weights(members, machine, dtype=params.dtype)
    members = [_at_centre(member, problem) for member in members]
    weights_MW = stacked_weights(members, machine, dtype=params.dtype)
    weights_MD, statistics_MS = problem.network.split(weights_MW)
    hessian, block = _hessians(members, machine)
    data = [member.one("data") for member in members]
    sets = {
        name: load_samples(problem, data, prefix, machine.device, weights_MD.dtype)
        for name, prefix in SETS.items()
    }
    given_MD, _ = problem.network.split(given_MW)
    slice_directions = directions(members, block, problem, given_MD)
    draws = batch_draws(list(map(_params, members)), sets["train"].count)
    gradient_MD = _mean_gradient(
        problem, weights_MD, statistics_MS, sets["train"], draws
    )
    local = local_model(hessian, gradient_MD, slice_directions.columns)
    classes = int(data[0]["num_classes"])
    outcomes = []
    for number, member in enumerate(members):
        losses = _losses(problem, sets, number, classes=classes, draws=draws)
        columns_DK = slice_directions.columns[number]
        values_QP = _evaluate_points(
            params, problem, losses, weights_MW[number], columns_DK
        )
        arrays = _slice_arrays(values_QP, params)
        arrays |= _model_arrays(member, slice_directions, local, number)
        outcomes.append(Outcome(arrays))
    return outcomes


def _hessians(
    members: Sequence[Member], machine: Machine
) -> tuple[BatchedOperator, BatchedOperator]:
    """Return the Hessian by all parameters, and by those that are moved."""
    build = partial(
        batched_hessian,
        members,
        machine,
        dtype=_params(members[0]).dtype,
        columns=columns_at_once(members[0]),
        modes=list(map(_params, members)),
    )
    hessian = build()
    if _params(members[0]).layers is None:
        return hessian, hessian
    return hessian, build(names=moved_tensors(members[0]))


def _losses(
    problem: Problem,
    sets: Mapping[str, Samples],
    number: int,
    *,
    classes: int,
    draws: BatchDraws | None,
) -> list[_MeanLoss]:
    """Return the losses of one member on the sets that have samples."""
    # That of test samples is that of the network as it is used, always.
    draw = draws and draws.select(torch.tensor([number]))
    return [
        _MeanLoss(
            problem,
            samples.models(slice(number, number + 1)),
            classes,
            draw if name == "train" else None,
        )
        for name, samples in sets.items()
        if samples.count
    ]


def _at_centre(member: Member, problem: Problem) -> Member:
    """Return a member whose weights are where its slices have step 0."""
    params, weights = _params(member), member.one("weights")
    if params.centre == "weights":
        return member
    centre_W = weights["weights"].copy()
    moved_D = moved_entries(problem, params.layers).numpy()
    centre_W[: len(moved_D)][moved_D] = 0
    centred = replace(weights, arrays={**weights.arrays, "weights": centre_W})
    return replace(member, inputs={**member.inputs, "weights": [centred]})


def _mean_gradient(
    problem: Problem,
    weights_MD: Tensor,
    statistics_MS: Tensor,
    samples: Samples,
    draws: BatchDraws | None,
) -> Tensor:
    together = draws.batch_size if draws else None
    return mean_gradient(
        problem.losses,
        weights_MD,
        samples.inputs,
        samples.targets,
        fixed_MS=statistics_MS,
        batch_size=together or problem.rows_per_pass(1),
        models_per_pass=max(2, problem.models_per_pass(samples.count, 1, together)),
        draws=draws,
    )


class _MeanLoss:
    """Mean loss, also for sse, and accuracy over one set of samples."""

    def __init__(
        self,
        problem: Problem,
        samples: Samples,
        classes: int,
        draws: BatchDraws | None,
    ) -> None:
        self._evaluate = Evaluation(problem, samples, classes, draws=draws)
        self._share = 1 / samples.count if problem.criterion.is_sum else 1.0

    def __call__(self, points_PW: Tensor) -> Tensor:
        loss_P, accuracy_P = self._evaluate(points_PW)
        return torch.stack([self._share * loss_P, accuracy_P])


def _evaluate_points(
    params: LandscapeParams,
    problem: Problem,
    losses: Sequence[_MeanLoss],
    weights_W: Tensor,
    directions_DK: Tensor,
) -> Tensor:
    """Evaluate one model at all points, which form a batch of models.

    Returns:
        Loss and accuracy of each set at each point, (Q, P): the centre, the lines, and
        the plane if requested.
    """
    weights_D, statistics_S = problem.network.split(weights_W)

    def measure(points_PD: Tensor) -> Tensor:
        statistics_PS = statistics_S.expand(len(points_PD), -1)
        points_PW = torch.cat([points_PD, statistics_PS], dim=1)
        return torch.cat([loss(points_PW) for loss in losses])

    count, steps_P = params.num_directions, _steps(params)
    parts = [steps_P.new_zeros(1, count), line_points(steps_P, count)]
    if params.plane:
        parts.append(plane_points(steps_P, count))
    with full_precision():
        values_QP = along(
            measure,
            weights_D,
            directions_DK,
            torch.cat(parts),
            points_per_pass=_points_per_pass(problem),
        )
    return values_QP.double().cpu()


def _steps(params: LandscapeParams) -> Tensor:
    ends = -params.distance, params.distance
    return torch.linspace(*ends, params.num_points, dtype=torch.float64)


def _slice_arrays(values_QP: Tensor, params: LandscapeParams) -> dict[str, Array]:
    points, count = params.num_points, params.num_directions
    lines = slice(1, 1 + count * points)
    side = points if params.plane else 0
    arrays = {
        "step": _steps(params),
        "num_nonfinite": (~values_QP[::2, 1:].isfinite()).sum(),
        "num_evaluations": torch.tensor(values_QP.shape[1]),
    }
    missing_QP = values_QP.new_full((4 - len(values_QP), values_QP.shape[1]), torch.nan)
    names = [f"{name}_{quantity}" for name in SETS for quantity in ("loss", "accuracy")]
    for name, values_P in zip(names, torch.cat([values_QP, missing_QP]), strict=True):
        arrays[name] = values_P[lines].reshape(count, points)
        if name.endswith("loss"):
            arrays[f"centre_{name}"] = values_P[0]
            arrays[f"plane_{name}"] = values_P[lines.stop :].reshape(side, side)
    return {name: values.numpy().copy() for name, values in arrays.items()}


def _direction_name(params: LandscapeParams, number: int) -> str:
    name = f"{NAMES.get(params.directions, params.directions)} {number}"
    layers = params.layers or ()
    if params.layer_each:
        layers = layers[number - 1 : number]
    where = f" of {', '.join(layers)}" if layers else ""
    return f"{name}{where}{ABOUT_ZERO if params.centre == 'zero' else ''}"


def _model_arrays(
    member: Member, slice_directions: Directions, local: LocalModel, number: int
) -> dict[str, Array]:
    params = _params(member)
    count = params.num_directions
    epochs = [m["checkpoint"] for m in member.inputs.get("trajectory", ())]
    numbers = {
        "direction_norm": slice_directions.columns[number].norm(dim=0),
        "slope": local.slope[number],
        "curvature": local.curvature[number],
        "rayleigh": local.rayleigh[number],
        "residuals": local.residuals[number],
        "path": slice_directions.path[number],
        "explained": slice_directions.explained[number],
    }
    numbers_from_1 = np.arange(1, count + 1, dtype=np.int64)
    return {
        "direction": numbers_from_1,
        "other": numbers_from_1,
        "along": np.array([_direction_name(params, k) for k in range(1, count + 1)]),
        "converged": slice_directions.converged[number].cpu().numpy(),
        "checkpoint": np.concatenate([np.zeros(0, np.int64), *epochs]),
        "num_matvecs": np.array(
            slice_directions.num_matvecs[number] + count, dtype=np.int64
        ),
        **{name: value.double().cpu().numpy() for name, value in numbers.items()},
    }
