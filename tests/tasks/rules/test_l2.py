"""Decay of all weights at a rate of its own."""

import pytest
import torch

from curvflow.tasks.training.updates import Updates
from tests.tasks.rules.checks import PROBLEM, rule, started, step_at

# For the tests that hold for all rules.
SETTINGS = [{"lr": 0.05, "rate": 0.001}, {"lr": 0.1, "rate": 0.01, "decay_factor": 1.0}]


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_without_a_gradient_every_norm_shrinks_by_a_power(factor):
    rates, steps = (1e-3, 2e-2), 50
    rules = [rule(rule="l2", lr=0.1, rate=r, decay_factor=factor) for r in rates]
    start = weights = started(2)
    updates = Updates(rules, weights, PROBLEM)
    for count in range(steps):
        now = step_at(count, 2)
        weights = updates.step(torch.zeros_like(weights), weights, now)
    actual = PROBLEM.network.layout.norms(weights)
    shrunk = (1 - factor * torch.tensor([rates], dtype=torch.float64).T) ** steps
    expected = shrunk * PROBLEM.network.layout.norms(start)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=0)


def test_the_gradient_of_the_squared_norm_is_the_default():
    assert rule(rule="l2", lr=0.1, rate=0.1).decay_factor == 2
    assert rule(rule="l2", lr=0.1, rate=0.1).product_from() is None
