"""Stochastic gradient descent."""

from functools import partial

import pytest
import torch
from pydantic import ValidationError
from torch.optim import SGD

from curvflow.tasks.training.step_context import Hyper
from tests.tasks.rules.checks import assert_steps_equal, rule

# For the tests that hold for all rules.
SETTINGS = [
    {"lr": 0.1, "momentum": 0.9},
    {"lr": 0.05, "momentum": 0.5, "nesterov": True},
    {"lr": 0.05, "schedule": {"kind": "step", "at": [1, 3], "factor": 0.5}},
]


def test_every_step_is_that_of_torch():
    settings = [
        {"lr": 0.05},
        {"lr": 0.02, "momentum": 0.9},
        {"lr": 0.02, "momentum": 0.8, "nesterov": True},
        {"lr": 0.03, "weight_decay": 0.1},
        {"lr": 0.01, "momentum": 0.5, "nesterov": True, "weight_decay": 0.2},
    ]
    assert_steps_equal(
        [rule(rule="sgd", **s) for s in settings], [partial(SGD, **s) for s in settings]
    )


def test_steps_without_any_momentum_keep_no_velocity():
    settings = [{"lr": 0.05}, {"lr": 0.03, "weight_decay": 0.1}]
    assert_steps_equal(
        [rule(rule="sgd", **s) for s in settings], [partial(SGD, **s) for s in settings]
    )


def test_looking_ahead_needs_a_velocity():
    with pytest.raises(ValidationError, match="cannot be combined with momentum 0"):
        rule(rule="sgd", lr=0.1, nesterov=True)


def test_weight_decay_is_known_to_be_zero_only_where_it_is_of_all_models():
    plain, decaying = rule(rule="sgd", lr=0.1), rule(rule="sgd", lr=0.1, weight_decay=1)
    weights = torch.ones(2, 3)
    scale = torch.zeros(2, 1)
    assert Hyper([plain, plain], weights).scaled(scale).is_zero("weight_decay")
    assert not Hyper([plain, decaying], weights).is_zero("weight_decay")
    assert not Hyper([plain, plain], weights).scaled(scale).is_zero("lr")
