"""Rules by themselves, step by step, and on data."""

import torch

from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import load_samples, pose
from curvflow.tasks.training.gradients import Noise, gradients
from curvflow.tasks.training.updates import Updates
from curvflow.testing.rules import (
    PROBLEM,
    SIZE,
    STEPS,
    STEPS_PER_EPOCH,
    assert_steps_equal,
    gradient,
    rule,
    started,
    step_at,
    trained,
)

__all__ = [
    "PROBLEM",
    "SIZE",
    "STEPS",
    "STEPS_PER_EPOCH",
    "assert_steps_equal",
    "gradient",
    "rule",
    "started",
    "step_at",
    "trained",
    "trained_on",
]


def trained_on(data, model, rules, epochs, loss="auto", start=None):
    """Train on all samples at once, from given or drawn weights, in float64.

    Returns:
        The weights after each step, and the problem.
    """
    problem = pose(parse_model(model), loss, data)
    samples = load_samples(problem, [data], "", "cpu", torch.float64)
    weights = started(len(rules), problem.network.num_parameters)
    weights = weights if start is None else start
    updates = Updates(rules, weights, problem)
    course = []
    for count in range(epochs):
        noise = Noise(range(len(rules)), count, "dropout", weights)
        actual = gradients(problem, weights, weights[:, :0], samples, noise, without=0)
        batch = samples.models(slice(None))
        now = step_at(count, len(rules), actual.product, batch, problem)
        weights = updates.step(actual.gradient, weights, now)
        course.append(weights)
    return course, problem
