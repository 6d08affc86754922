"""Averages of partially adaptive AdamW."""

import torch

from tests.tasks.rules.averaging import EXACT, results
from tests.tasks.rules.checks import rule, started

# For the tests that hold for all rules.
SETTINGS = [
    {"lr": 0.05, "start": 2},
    {"lr": 0.02, "start": 1, "p": 0.2, "eps_at": "inside", "every": 3},
]


def test_gadamx_with_half_a_power_is_gadam_and_adamw():
    shared = {"lr": 0.03, "weight_decay": 0.2}
    start = started(3)
    late = {"start": 100, **shared}
    rules = [
        rule(rule="gadamx", p=0.5, **late),
        rule(rule="gadam", **late),
        rule(rule="adamw", **shared),
    ]
    same = start[[0, 0, 0]]
    for weights, result in results(rules, same, 20):
        torch.testing.assert_close(weights, weights[[2, 2, 2]], **EXACT)
        torch.testing.assert_close(result, weights, rtol=0, atol=0)
