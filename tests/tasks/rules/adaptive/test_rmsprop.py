"""RMSprop."""

from functools import partial

import torch
from torch.optim import RMSprop

from curvflow.tasks.training.updates import Updates
from tests.tasks.rules.checks import (
    PROBLEM,
    assert_steps_equal,
    rule,
    started,
    step_at,
)

# For the tests that hold for all rules.
SETTINGS = [
    {"lr": 0.01},
    {"lr": 0.003, "momentum": 0.9, "weight_decay": 0.01},
    {"lr": 0.003, "centered": True, "alpha": 0.9},
]

PLAIN = [{}, {"lr": 0.02, "alpha": 0.5}, {"eps": 0.1, "weight_decay": 0.2}]
MOMENTUM = [{"lr": 0.02, "momentum": 0.9}, {"momentum": 0.5, "weight_decay": 0.1}]
CENTRED = [{"centered": True}, {"centered": True, "alpha": 0.8, "eps": 0.01}]
BOTH = [{"centered": True, "momentum": 0.7, "weight_decay": 0.1}]


def test_every_step_is_that_of_torch():
    for settings in (PLAIN, MOMENTUM, CENTRED, PLAIN + MOMENTUM + CENTRED + BOTH):
        assert_steps_equal(
            [rule(rule="rmsprop", **s) for s in settings],
            [partial(RMSprop, **s) for s in settings],
        )


def test_a_gradient_that_hardly_varies_leaves_the_weights_finite():
    start = started(2).float()
    updates = Updates([rule(rule="rmsprop", centered=True)] * 2, start, PROBLEM)
    weights = start
    for count in range(3000):
        flat = torch.full_like(start, 0.1 + 1e-6 * (count % 2))
        weights = updates.step(flat, weights, step_at(count, 2))
    assert torch.isfinite(weights).all()
