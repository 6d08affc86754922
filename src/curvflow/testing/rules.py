"""Learning rules against the optimisers of PyTorch, step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import Tensor

from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.models import parse_model
from curvflow.schemas.nodes import Data
from curvflow.schemas.rules import RuleSpec
from curvflow.tasks.networks.problems import Problem, pose
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.training.gradients import Noise, gradient_at
from curvflow.tasks.training.step_context import Step
from curvflow.tasks.training.updates import Updates

STEPS, STEPS_PER_EPOCH = 20, 4

_LINE = np.linspace(-1, 1, 24).reshape(8, 3)
_DATA = Data("data", "data.array", {}, dataset(_LINE, np.arange(8) % 2), "line")
# Two outputs of three inputs and their biases: eight parameters.
PROBLEM = pose(parse_model({"kind": "linear"}), "auto", _DATA)
SIZE = PROBLEM.network.num_parameters

Optimiser = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]


def rule(**fields: Any) -> Any:
    """Return the specification of a rule, as a study has it under `rule:`."""
    return TypeAdapter(RuleSpec).validate_python(fields)


def gradient(weights: Tensor, step: int) -> Tensor:
    """Return the gradient of a quartic that changes with the step."""
    return weights**3 - torch.cos(weights + step)


def started(models: int, size: int = SIZE) -> Tensor:
    """Return random weights of some models, (M, D)."""
    generator = stream(0, "t")
    return torch.randn(models, size, generator=generator, dtype=torch.float64)


def step_at(
    count: int,
    models: int,
    product: Any = None,
    batch: Any = None,
    problem: Problem = PROBLEM,
) -> Callable[[Any], Step]:
    """Return the step context of the models of a group at step `count`, from 0.

    Without a batch, gradients at other weights are those of the quartic.
    """

    def context(chosen: Any) -> Step:
        like = torch.zeros(1, dtype=torch.float64)
        noise = Noise(range(models), count, "rule", like).of(chosen)
        dropout = Noise(range(models), count, "dropout", like).of(chosen)
        statistics = problem.network.first_statistics().expand(models, -1)[chosen]

        def elsewhere(weights: Tensor) -> Tensor:
            if batch is None:
                return gradient(weights, count)
            mine = batch.models(chosen)
            return gradient_at(problem, weights, statistics, mine, dropout)

        return Step(
            epoch=count // STEPS_PER_EPOCH,
            count=count,
            begins_epoch=count % STEPS_PER_EPOCH == 0,
            ends_epoch=count % STEPS_PER_EPOCH == STEPS_PER_EPOCH - 1,
            problem=problem,
            statistics=statistics,
            batch=batch,
            product=None if product is None else product[chosen],
            draw=noise.uniform(),
            dropout=lambda models: dropout.of(models).uniform(),
            gradient_at=elsewhere,
        )

    return context


def trained(
    rules: Sequence[Any], start: Tensor, steps: int = STEPS
) -> tuple[list[Tensor], Updates]:
    """Step on the quartic, and return the weights after each step and the rules."""
    weights, updates = start, Updates(rules, start, PROBLEM)
    course = []
    for count in range(steps):
        weights = updates.step(
            gradient(weights, count), weights, step_at(count, len(rules))
        )
        course.append(weights)
    return course, updates


def assert_steps_equal(
    rules: Sequence[Mapping[str, Any] | Any], optimisers: Sequence[Optimiser]
) -> None:
    """Train models under rules at once, and one by one under PyTorch's optimisers.

    Args:
        rules: one for each model, as `rule` returns them.
        optimisers: for each model a function from parameters to its optimiser.

    Examples:
        >>> import torch
        >>> from curvflow.testing import assert_steps_equal
        >>> from curvflow.testing.rules import rule
        >>> assert_steps_equal(
        ...     [rule(rule="sgd", lr=0.1)], [lambda p: torch.optim.SGD(p, lr=0.1)]
        ... )
    """
    start = started(len(rules))
    expected = [torch.nn.Parameter(row.clone()) for row in start]
    steps = [make([p]) for make, p in zip(optimisers, expected, strict=True)]
    course, _ = trained(rules, start)
    for count, weights in enumerate(course):
        for parameter, optimiser in zip(expected, steps, strict=True):
            parameter.grad = gradient(parameter.detach(), count)
            optimiser.step()
        reached = torch.stack([p.detach() for p in expected])
        torch.testing.assert_close(weights, reached, rtol=1e-12, atol=1e-13)
    assert not torch.allclose(weights, start, rtol=1e-3)
