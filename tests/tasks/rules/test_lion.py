"""Lion."""

import math

import pytest
import torch

from curvflow.tasks.training.updates import Updates
from tests.tasks.rules.checks import (
    PROBLEM,
    gradient,
    rule,
    started,
    step_at,
    trained,
)

# For the tests that hold for all rules.
SETTINGS = [
    {"lr": 0.01},
    {"lr": 0.005, "beta1": 0.5, "beta2": 0.9, "weight_decay": 0.1},
]


def looped(weights, lr, beta1=0.9, beta2=0.99, weight_decay=0.0, steps=20):
    """Step one model, number by number."""
    w, course = weights.tolist(), []
    m = [0.0] * len(w)
    for count in range(steps):
        g = gradient(torch.tensor(w, dtype=torch.float64), count).tolist()
        for i in range(len(w)):
            mean = beta1 * m[i] + (1 - beta1) * g[i]
            sign = math.copysign(1.0, mean) if mean else 0.0
            w[i] -= lr * (sign + weight_decay * w[i])
            m[i] = beta2 * m[i] + (1 - beta2) * g[i]
        course.append(torch.tensor(w, dtype=torch.float64))
    return course


def test_every_step_is_that_of_a_plain_loop():
    settings = [*SETTINGS, {"lr": 0.02, "beta1": 0.0}, {"lr": 0.02, "beta2": 0.0}]
    start = started(len(settings))
    course, _ = trained([rule(rule="lion", **s) for s in settings], start)
    for number, fields in enumerate(settings):
        for weights, expected in zip(
            course, looped(start[number], **fields), strict=True
        ):
            torch.testing.assert_close(weights[number], expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_the_size_of_gradients_does_not_count(scale):
    fields = {"lr": 0.01, "weight_decay": 0.1}
    start = started(1)
    plain, scaled = (
        Updates([rule(rule="lion", **fields)], start, PROBLEM) for _ in "ab"
    )
    weights = other = start
    for count in range(10):
        of_step = gradient(weights, count)
        weights = plain.step(of_step, weights, step_at(count, 1))
        other = scaled.step(scale * of_step, other, step_at(count, 1))
    torch.testing.assert_close(weights, other, rtol=1e-14, atol=0)


def test_on_a_slope_each_step_has_the_length_of_the_rate():
    start = torch.zeros(1, PROBLEM.network.num_parameters, dtype=torch.float64)
    updates, weights = Updates([rule(rule="lion", lr=0.25)], start, PROBLEM), start
    slope = torch.linspace(-1, 1, start.shape[1], dtype=torch.float64)[None]
    slope[0, 3] = 0.0
    for count in range(5):
        weights = updates.step(slope, weights, step_at(count, 1))
    torch.testing.assert_close(weights, -1.25 * slope.sign(), rtol=0, atol=0)
