"""Partially adaptive Adam."""

from functools import partial

import pytest
import torch
from pydantic import ValidationError
from torch.optim import Adam, AdamW

from tests.tasks.rules.checks import (
    assert_steps_equal,
    gradient,
    rule,
    started,
    trained,
)

# For the tests that hold for all rules.
SETTINGS = [
    {"lr": 0.05},
    {"lr": 0.02, "p": 0.2, "weight_decay": 0.1},
    {"eps_at": "inside", "decoupled": True, "amsgrad": False},
]

EXACT = {"rtol": 1e-12, "atol": 1e-13}


def padam(**settings):
    return rule(rule="padam", **settings)


def test_half_is_adam_with_every_kind_of_decay():
    settings = [
        {"lr": 0.05, "amsgrad": False},
        {"lr": 0.05, "amsgrad": True},
        {"lr": 0.02, "amsgrad": False, "weight_decay": 0.2},
        {"lr": 0.02, "amsgrad": True, "weight_decay": 0.2, "eps": 0.1},
    ]
    assert_steps_equal(
        [padam(p=0.5, **s) for s in settings], [partial(Adam, **s) for s in settings]
    )
    assert_steps_equal(
        [padam(p=0.5, decoupled=True, **s) for s in settings],
        [partial(AdamW, **{"weight_decay": 0.0, **s}) for s in settings],
    )


def by_hand(start, *, p, steps, eps=1e-3, inside, lr=0.1):
    """Write the recursion out, without any of the rule's options."""
    w, m, v = start, 0, 0
    for t in range(1, steps + 1):
        g = gradient(w, t - 1)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        mean, square = m / (1 - 0.9**t), v / (1 - 0.999**t)
        floor = (square + eps) ** p if inside else (square**0.5 + eps) ** (2 * p)
        w = w - lr * mean / floor
    return w


@pytest.mark.parametrize("p", [0.125, 0.2, 0.5])
@pytest.mark.parametrize("place", ["inside", "outside"])
def test_eps_stands_where_it_is_requested(p, place):
    rules = [padam(p=p, eps_at=place, eps=1e-3, amsgrad=False)] * 2
    start = started(2)
    course, _ = trained(rules, start)
    expected = by_hand(start, p=p, steps=len(course), inside=place == "inside")
    torch.testing.assert_close(course[-1], expected, **EXACT)


def test_a_vanishing_power_leaves_the_mean_gradient_as_the_direction():
    start = started(2)
    course, _ = trained([padam(p=1e-13, lr=0.01)] * 2, start)
    w, m = start, torch.zeros_like(start)
    for step, weights in enumerate(course):
        m = 0.9 * m + 0.1 * gradient(w, step)
        w = w - 0.01 * m / (1 - 0.9 ** (step + 1))
        torch.testing.assert_close(weights, w, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("p", [0.0, 0.6])
def test_a_power_out_of_bounds_is_refused(p):
    with pytest.raises(ValidationError, match=r"\bp\b"):
        padam(p=p)
