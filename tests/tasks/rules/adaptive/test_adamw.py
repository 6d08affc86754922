"""Adam with decoupled weight decay."""

from functools import partial

from torch.optim import AdamW

from tests.tasks.rules.checks import assert_steps_equal, rule

# For the tests that hold for all rules.
SETTINGS = [{"lr": 0.01}, {"lr": 0.02, "amsgrad": True, "weight_decay": 0.1}]


def adamw(lr=0.001, beta1=0.9, beta2=0.999, **rest):
    return partial(AdamW, lr=lr, betas=(beta1, beta2), **rest)


PLAIN = [
    {},
    {"lr": 0.05},
    {"lr": 0.02, "beta1": 0.5, "beta2": 0.9, "weight_decay": 0.0},
    {"lr": 0.03, "eps": 0.1, "weight_decay": 0.2},
    {"lr": 0.01, "beta1": 0.0},
]
LARGEST = [
    {"lr": 0.05, "amsgrad": True},
    {"lr": 0.1, "beta2": 0.5, "amsgrad": True, "weight_decay": 0.3},
]


def test_every_step_is_that_of_torch():
    for settings in (PLAIN, LARGEST, PLAIN + LARGEST):
        assert_steps_equal(
            [rule(rule="adamw", **s) for s in settings], [adamw(**s) for s in settings]
        )
