"""Adagrad."""

from functools import partial

from torch.optim import Adagrad

from tests.tasks.rules.checks import assert_steps_equal, rule

# For the tests that hold for all rules.
SETTINGS = [{"lr": 0.1}, {"lr": 0.05, "lr_decay": 0.1, "weight_decay": 0.1}]

CASES = [
    {},
    {"lr": 0.1, "lr_decay": 0.3},
    {"lr": 0.2, "initial_accumulator": 0.5},
    {"lr": 0.1, "eps": 0.1, "weight_decay": 0.2},
    {"lr": 0.3, "lr_decay": 0.1, "initial_accumulator": 2.0, "weight_decay": 0.1},
]


def adagrad(initial_accumulator=0.0, **rest):
    return partial(Adagrad, initial_accumulator_value=initial_accumulator, **rest)


def test_every_step_is_that_of_torch():
    assert_steps_equal(
        [rule(rule="adagrad", **s) for s in CASES], [adagrad(**s) for s in CASES]
    )
