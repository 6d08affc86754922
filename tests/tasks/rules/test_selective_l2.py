"""Decay of the weights that matter least."""

import torch

from tests.tasks.rules.checks import rule
from tests.tasks.rules.regularised import PROBLEM, numbers, one_step

# For the tests that hold for all rules.
SETTINGS = [
    {"lr": 0.05, "rate": 0.01, "omega": 0.1},
    {"lr": 0.1, "rate": 0.02, "omega": 0.3, "decay_factor": 1.0},
    {"lr": 0.05, "rate": 0.001, "omega": 0.3, "mask": "inverted"},
]

FIRST = PROBLEM.network.layout.sizes[0]


def decayed(h, **choices):
    """Return which parameters decay, by the part that is left of ones."""
    rules = [rule(rule="selective_l2", lr=0.1, rate=0.1, omega=0.5, **choices)]
    none = torch.zeros_like(h)
    (moved,) = one_step(rules, gradient=none, product=h, weights=torch.ones_like(h))
    return moved != 1


def products(first):
    h = numbers(1, "gradient")
    h[0, :FIRST] = torch.as_tensor(first, dtype=h.dtype)
    return h


def pattern(*values):
    return [*values, *[0.0] * (FIRST - len(values))]


def test_by_default_small_entries_decay_and_those_at_the_bound():
    actual = decayed(products(pattern(2, 1, 1.1, -1, -1.1, 0.5)))[:6].tolist()
    assert actual == [False, True, False, True, False, True]


def test_the_bound_itself_can_be_protected():
    actual = decayed(products(pattern(2, 1, -1, 0.5)), at_equality="protected")
    assert actual[:4].tolist() == [False, False, False, True]


def test_the_inverted_mask_takes_the_large_entries():
    h = products(pattern(2, 1, 1.1, 0.5))
    actual = decayed(h, mask="inverted", at_equality="protected")
    assert actual[:4].tolist() == [True, False, True, False]
    assert torch.equal(actual, ~decayed(h))


def test_a_tensor_whose_entries_are_all_negative_is_protected_unless_absolute():
    h = products([-1.0 - n for n in range(FIRST)])
    assert not decayed(h)[:FIRST].any()
    half = torch.tensor([1 + n <= FIRST / 2 for n in range(FIRST)])
    assert torch.equal(decayed(h, maximum="absolute")[:FIRST], half)


def test_a_tensor_without_curvature_decays_by_default():
    h = products([0.0] * FIRST)
    assert decayed(h)[:FIRST].all()
    assert not decayed(h, at_equality="protected")[:FIRST].any()
