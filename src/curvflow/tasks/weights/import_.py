"""Import of weights trained elsewhere, from a file of named arrays or tensors."""

from __future__ import annotations

from typing import cast

import numpy as np

from curvflow.schemas.kinds.weights.import_ import ImportParams
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.networks.problems import pose
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.weights.arrangement import arranged, mean_losses


@computes_each("weights.import")
def import_(member: Member, machine: Machine) -> Outcome:
    """Arrange the arrays of the user's file in the order of the network's weights.

    Args:
        member: `data`, the network, its loss and the arrays of the file.
        machine: not used.

    Returns:
        Weights, followed by statistics such as a batch norm's, in float64, with the
        mean losses there (sums for sse), which show that the network is the trained
        one.

    Raises:
        InputError: a tensor lacks an array or its array has another shape, or an array
            belongs to no tensor.
    """
    params = cast("ImportParams", member.params)
    data = member.one("data")
    problem = pose(params.model, params.loss, data)
    ((source, arrays),) = member.files.items()
    weights_W = arranged(params, problem.network, arrays, source)
    train_M, test_M = (
        mean_losses(problem, weights_W[None], data, prefix) for prefix in ("", "test_")
    )
    return Outcome(
        {
            "final_train_loss": train_M[0],
            "final_test_loss": test_M[0],
            "num_parameters": np.array(problem.network.num_parameters, dtype=np.int64),
            "weights": weights_W,
            "network": np.array(problem.text),
        }
    )
