"""True weights of models with a known learning coefficient."""

from __future__ import annotations

from typing import cast

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.known_answers import Known, known
from curvflow.schemas.kinds.weights.known_answer import KnownAnswerWeightsParams
from curvflow.schemas.models.deep_linear import DeepLinear
from curvflow.schemas.nodes import Member, NodeData, Outcome
from curvflow.tasks.datasets.known_answers import (
    answer,
    population,
    true_weights,
    truth,
)
from curvflow.tasks.networks.problems import pose
from curvflow.tasks.registry import Machine, computes_each


@computes_each("weights.known_answer")
def known_answer(member: Member, machine: Machine) -> Outcome:
    """Set the weights to the balanced true parameter of the data.

    Args:
        member: `data` of data.known_answer, with its model and rank.
        machine: not used.

    Returns:
        The weights, as training with loss sse would store them, and the learning
        coefficient there.

    Raises:
        InputError: the data are from another model, rank or kind.
    """
    params = cast("KnownAnswerWeightsParams", member.params)
    data, model = member.one("data"), known(params)
    _check_data(data, model, params.rank)
    problem = pose(model, "sse", data)
    inputs, outputs = data["inputs"].shape[1], data["targets"].shape[1]
    coefficient = answer(model, inputs, outputs, params.rank)
    return Outcome(
        {
            "llc_true": np.array(float(coefficient.value)),
            "llc_multiplicity": np.array(coefficient.multiplicity, dtype=np.int64),
            "num_parameters": np.array(problem.network.num_parameters, dtype=np.int64),
            "weights": true_weights(model, problem.network.layout, params.rank),
            "network": np.array(problem.text),
        }
    )


def _check_data(data: NodeData, model: Known, rank: int) -> None:
    # The test set of data.known_answer is the exact population.
    inputs, targets = data["test_inputs"], data["test_targets"]
    is_wide = isinstance(model, DeepLinear)
    fits = inputs.ndim == targets.ndim == 2 and (
        not is_wide or rank <= min(inputs.shape[1], targets.shape[1])
    )
    if not (
        fits
        and np.array_equal(inputs, population(model, inputs.shape[1]))
        # tanh may differ in the last bits on another processor.
        and np.allclose(targets, truth(model, inputs, rank, targets.shape[1]), 1e-12, 0)
    ):
        raise InputError(
            f"data: expected data.known_answer with this model and rank {rank}, got "
            "other data. Take the data of the same model and rank."
        )
