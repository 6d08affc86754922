"""Averages of gradient descent, on a noisy quadratic against exact moments."""

import math

import pytest
import torch
from pydantic import ValidationError

from curvflow.tasks.numerics import stream
from curvflow.tasks.training.updates import Updates
from tests.tasks.rules.checks import PROBLEM, rule, step_at

# For the tests that hold for all rules.
SETTINGS = [
    {"lr": 0.1, "momentum": 0.5, "start": 2},
    {"lr": 0.05, "start": 1, "every": 3, "count_before": True},
]


def noisy(rules, *, start, sharpness, sigma, steps):
    """Step on sharpness w^2 / 2 with noise in the gradient, from one start."""
    weights = torch.full((len(rules), 50), start, dtype=torch.float64)
    updates, generator = Updates(rules, weights, PROBLEM), stream(3, "noise")
    for count in range(steps):
        noise = torch.randn(weights.shape, generator=generator, dtype=torch.float64)
        noisy_MD = sharpness * weights + sigma * noise
        weights = updates.step(noisy_MD, weights, step_at(count, len(rules)))
    return weights, updates.evaluated(weights)


def assert_drawn_from(sample, mean, variance):
    count = sample.numel()
    assert abs(sample.mean().item() - mean) < 4 * math.sqrt(variance / count)
    error = variance * math.sqrt(2 / (count - 1))
    assert abs(sample.var().item() - variance) < 4 * error


# Granziol (2020), section 7.5, as derived anew: iterates are correlated.
@pytest.mark.parametrize(("lr", "steps"), [(0.1, 100), (0.4, 100), (0.05, 30)])
def test_iterate_and_average_have_their_exact_moments(lr, steps):
    models, w_0, h, sigma = 200, 2.0, 0.5, 1.0
    a = 1 - lr * h
    rules = [rule(rule="swa", lr=lr, start=0, every=1)] * models
    weights, result = noisy(rules, start=w_0, sharpness=h, sigma=sigma, steps=steps)
    spread = lr * sigma**2 * (1 - a ** (2 * steps)) / (h * (2 - lr * h))
    assert_drawn_from(weights, a**steps * w_0, spread)
    mean = a * (1 - a**steps) * w_0 / (steps * lr * h)
    inner = steps - 2 * a * (1 - a**steps) / (1 - a)
    inner += a**2 * (1 - a ** (2 * steps)) / (1 - a**2)
    assert_drawn_from(result, mean, sigma**2 / (steps * h) ** 2 * inner)


def test_looking_ahead_needs_a_velocity_here_as_well():
    with pytest.raises(
        ValidationError, match="nesterov cannot be combined with momentum 0"
    ):
        rule(rule="swa", lr=0.1, start=0, nesterov=True)
