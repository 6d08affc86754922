"""Truths of which the learning coefficient is known: populations, weights, answers."""

from __future__ import annotations

import numpy as np

from curvflow.schemas.kinds.shared.known_answers import Known
from curvflow.schemas.models.deep_linear import DeepLinear
from curvflow.schemas.models.mlp import Mlp
from curvflow.schemas.models.normal_crossing import NormalCrossing
from curvflow.schemas.nodes import Array
from curvflow.tasks.networks.network import Layout
from curvflow.tasks.numerics.estimators.learning_coefficients import (
    Coefficient,
    deep_linear,
    normal_crossing,
    regular,
    separable,
    tanh_units,
)

# Points of the law of the one input of tanh units; they identify half as many units.
NUM_POINTS = 16


def num_outputs(model: Known, outputs: int | None) -> int:
    """Return the outputs of a sample.

    Args:
        model: of known answer.
        outputs: as given; None for models that have theirs.
    """
    match model:
        case DeepLinear():
            assert outputs is not None
            return outputs
        case Mlp():
            return 1
        case NormalCrossing():
            return len(model.powers)
    return len(model.eigenvalues)


def population(model: Known, inputs: int) -> Array:
    """Return the law of the inputs as points of equal weight, (P, inputs).

    Args:
        model: of known answer.
        inputs: of a sample.

    Returns:
        For deep_linear sqrt(M) e_i, whose second moments are those of N(0, I), exactly;
        for tanh units points at equal distances, of mean 0 and variance 1; else ones.
    """
    if isinstance(model, DeepLinear):
        scaled = np.sqrt(inputs) * np.eye(inputs)
        # A data set has two samples or more.
        return scaled if inputs > 1 else np.concatenate([scaled, -scaled])
    if isinstance(model, Mlp):
        points = np.arange(max(NUM_POINTS, 2 * model.hidden[0]), dtype=np.float64)
        centred = points - points.mean()
        column: Array = (centred / np.sqrt((centred**2).mean()))[:, np.newaxis]
        return column
    return np.ones((2, 1))


def truth(model: Known, inputs_NI: Array, rank: int, outputs: int) -> Array:
    """Return the true targets, (N, outputs).

    Args:
        model: of known answer.
        inputs_NI: the inputs.
        rank: of the truth.
        outputs: of a sample.

    Returns:
        For tanh units the sum of tanh(j x), j from 1 to the rank; else the first `rank`
        inputs, then zeros.
    """
    if isinstance(model, Mlp):
        sum_N1: Array = np.tanh(inputs_NI * _slopes(rank)).sum(1, keepdims=True)
        return sum_N1
    targets_NO = np.zeros((len(inputs_NI), outputs))
    targets_NO[:, :rank] = inputs_NI[:, :rank]
    return targets_NO


def _slopes(rank: int) -> Array:
    """Return the weights into true units, all different so that none are one."""
    return np.arange(1.0, rank + 1)


def true_weights(model: Known, layout: Layout, rank: int) -> Array:
    """Return true weights, (D,).

    Those of products are balanced, ones on `rank` diagonal places of each layer: all
    factors have the rank of the truth and equal singular values, so that the
    coefficient there is the smallest of all true weights.

    Args:
        model: of known answer.
        layout: of the parameters, matrices all.
        rank: of the truth.
    """
    if isinstance(model, Mlp) and rank:
        return np.concatenate([_slopes(rank), np.ones(rank)])
    factors = []
    for rows, columns in layout.shapes:
        factor = np.zeros((rows, columns))
        np.fill_diagonal(factor[:rank, :rank], 1.0)
        factors.append(factor.ravel())
    return np.concatenate(factors)


def answer(model: Known, inputs: int, outputs: int, rank: int) -> Coefficient:
    """Return the learning coefficient at the true weights.

    Args:
        model: of known answer.
        inputs: of a sample.
        outputs: of a sample.
        rank: of the truth.

    Raises:
        InputError: the model has no weights of that rank.
    """
    match model:
        case DeepLinear():
            return deep_linear([inputs, *model.hidden, outputs], rank)
        case Mlp():
            # Units that all are needed and differ have a positive definite Hessian.
            return regular(2 * rank) if rank else tanh_units(model.hidden[0])
        case NormalCrossing():
            return separable([normal_crossing(powers) for powers in model.powers])
    return regular(len(model.eigenvalues))
