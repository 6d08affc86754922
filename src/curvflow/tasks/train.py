"""Train networks: all members of a tile in one program."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.schemas.kinds.train import TrainParams, kept_epochs, recorded_epochs
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.problems import (
    Problem,
    data_shapes,
    grouped,
    load_samples,
    pose,
)
from curvflow.tasks.registry import Machine, computes
from curvflow.tasks.training.batches import Batches
from curvflow.tasks.training.curves import EVALUATION_ROWS, Curves, Evaluation
from curvflow.tasks.training.fit import Fit, fit
from curvflow.tasks.training.passes import CPU_PASS_BYTES
from curvflow.tasks.training.updates import Updates


def _params(member: Member) -> TrainParams:
    return cast("TrainParams", member.params)


def _problem(member: Member) -> Problem:
    params = _params(member)
    return pose(params.model, params.loss, member.one("data"))


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: weights, activations, data.

    Activations count by half, up to the bound of a pass: members share the passes.
    """
    params, data = _params(member), member.one("data")
    network = _problem(member).network
    item: int = getattr(torch, params.dtype).itemsize
    count = len(data["inputs"])
    batch = min(params.batch_size or count, count)
    evaluated = min(max(count, len(data["test_inputs"])), EVALUATION_ROWS)

    def in_one_pass(samples: int) -> int:
        return min(samples * network.width * item, CPU_PASS_BYTES)

    # Weights, gradient, two moments, and the temporaries of an update.
    weights = 10 * item * network.num_parameters
    activations = max(4 * in_one_pass(batch), 2 * in_one_pass(evaluated))
    # As stored and as loaded.
    held = (8 + item) * sum(data[name].size for name in ("inputs", "test_inputs"))
    kept = 2 * 8 * len(kept_epochs(params)) * network.num_parameters
    return weights + activations // 2 + held + kept


@computes("train", member_bytes=member_bytes)
def train(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Train one network per member.

    The initial weights and the data order come from the member's seed alone, so that
    rules with equal seeds are compared in pairs.

    Args:
        members: `data`, and parameters that differ in seed and rule.
        machine: where to compute.

    Returns:
        Curves, final values, checkpoints and the description of the network.
    """

    def alike(member: Member) -> object:
        return _problem(member).text, data_shapes(member.one("data"))

    return grouped(members, alike, partial(_train_together, machine=machine))


def _train_together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    params, problem = _params(members[0]), _problem(members[0])
    data = [member.one("data") for member in members]
    dtype = getattr(torch, params.dtype)
    weights_MD = _initial(problem, members).to(machine.device, dtype)
    training = load_samples(data, "", machine.device, dtype)
    testing = load_samples(data, "test_", machine.device, dtype)
    classes = int(data[0]["num_classes"])
    curves = Curves(
        recorded_epochs(params),
        Evaluation(problem, training, classes),
        Evaluation(problem, testing, classes),
        len(members),
    )
    result = fit(
        problem,
        weights_MD,
        updates=Updates([_params(m).rule for m in members], weights_MD),
        batches=Batches(
            training, [_params(m).seed for m in members], params.batch_size
        ),
        curves=curves,
        kept=kept_epochs(params),
        diverged_above=params.diverged_above,
    )
    return [
        _outcome(number, params, problem, curves, result)
        for number in range(len(members))
    ]


def _initial(problem: Problem, members: Sequence[Member]) -> Tensor:
    drawn = []
    for member in members:
        params = _params(member)
        init = params.rule.init or params.model.init
        drawn.append(problem.network.initial(stream(params.seed, "init"), init))
    return torch.stack(drawn)


def _outcome(
    number: int, params: TrainParams, problem: Problem, curves: Curves, result: Fit
) -> Outcome:
    weights_CD = result.checkpoints[:, number]
    diverged = int(result.divergence.epoch_M[number])
    measured = curves.of(number)
    final = {f"final_{n}": row[-1:].reshape(()) for n, row in measured.items()}
    del final["final_update_norm"]
    tensor_norms = problem.network.layout.norms(weights_CD[-1:])
    trained = params.epochs if diverged < 0 else diverged
    arrays: dict[str, Array] = {
        "epoch": np.array(curves.epochs, dtype=np.int64),
        **measured,
        **final,
        "norm_tensor_sum": tensor_norms.sum().numpy(),
        "num_gradients": np.array(trained, dtype=np.int64),
        "diverged_epoch": np.array(diverged, dtype=np.int64),
        "num_parameters": np.array(problem.network.num_parameters, dtype=np.int64),
        "checkpoint": np.array(kept_epochs(params), dtype=np.int64),
        "weights": weights_CD.numpy().copy(),
        "network": np.array(problem.text),
    }
    if diverged < 0:
        return Outcome(arrays)
    return Outcome(
        arrays, "diverged", f"{result.divergence.cause(number)} at epoch {diverged}"
    )
