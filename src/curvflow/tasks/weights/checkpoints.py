"""Import of the checkpoints of a training elsewhere, a file or a folder each."""

from __future__ import annotations

from typing import cast

import numpy as np

from curvflow.schemas.kinds.weights.checkpoints import CheckpointsParams
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.networks.problems import pose
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.weights.arrangement import arranged, mean_losses


@computes_each("weights.checkpoints")
def checkpoints(member: Member, machine: Machine) -> Outcome:
    """Arrange the arrays of each checkpoint in the order of the network's weights.

    Args:
        member: `data`, the network, its loss and the arrays of each step's file.
        machine: not used.

    Returns:
        Weights and statistics in float64, (checkpoint, D + S), by ascending step, with
        the mean losses there (sums for sse).

    Raises:
        InputError: of some step a tensor lacks an array or its array has another shape,
            or an array belongs to no tensor.
    """
    params = cast("CheckpointsParams", member.params)
    data = member.one("data")
    problem = pose(params.model, params.loss, data)
    by_step = {
        int(source.rpartition("@")[2]): (source, arrays)
        for source, arrays in member.files.items()
    }
    steps = np.array(sorted(by_step), dtype=np.int64)
    rows = [
        arranged(params, problem.network, arrays, source)
        for _, (source, arrays) in sorted(by_step.items())
    ]
    weights_CW = np.stack(rows)
    train_C, test_C = (
        mean_losses(problem, weights_CW, data, prefix) for prefix in ("", "test_")
    )
    return Outcome(
        {
            "epoch": steps,
            "train_loss": train_C,
            "test_loss": test_C,
            "final_train_loss": train_C[-1],
            "final_test_loss": test_C[-1],
            "num_parameters": np.array(problem.network.num_parameters, dtype=np.int64),
            "checkpoint": steps,
            "weights": weights_CW,
            "network": np.array(problem.text),
        }
    )
