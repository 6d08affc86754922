"""Samples of truths of which the learning coefficient is known."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch

from curvflow.schemas.kinds.data.known_answer import KnownAnswerDataParams
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.kinds.shared.known_answers import Known, known
from curvflow.schemas.models.deep_linear import DeepLinear
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.datasets.images import single
from curvflow.tasks.datasets.known_answers import num_outputs, population, truth
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.registry import Machine, computes_each


@computes_each("data.known_answer")
def known_answer(member: Member, machine: Machine) -> Outcome:
    """Draw samples of a truth, or take its whole population.

    Args:
        member: the model, the truth, the number of samples and their noise.
        machine: not used.

    Returns:
        The data set; its test set is the population without noise, so that the loss
        there is the exact mean.
    """
    params = cast("KnownAnswerDataParams", member.params)
    model = known(params)
    outputs = num_outputs(model, params.outputs)
    points = population(model, params.inputs or 1)
    exact = points, truth(model, points, params.rank, outputs)
    if params.num_samples is None:
        return Outcome(dataset(*exact, *exact))
    generator = stream(params.seed, "data.known_answer")
    drawn = _drawn(model, points, params.num_samples, generator)
    shape = len(drawn), outputs
    noise = torch.randn(shape, generator=generator, dtype=torch.float64)
    targets = truth(model, drawn, params.rank, outputs) + params.noise * single(noise)
    return Outcome(dataset(drawn, targets, *exact))


def _drawn(
    model: Known, points_PI: Array, count: int, generator: torch.Generator
) -> Array:
    """Draw inputs, (count, I): normal ones for deep_linear, else some of the points."""
    if isinstance(model, DeepLinear):
        shape = count, points_PI.shape[1]
        return single(torch.randn(shape, generator=generator, dtype=torch.float64))
    chosen = torch.randint(len(points_PI), (count,), generator=generator)
    return np.ascontiguousarray(points_PI[chosen.numpy()])
