"""Adam."""

from functools import partial

from torch.optim import SGD, Adam

from tests.tasks.rules.checks import assert_steps_equal, rule

# For the tests that hold for all rules.
SETTINGS = [{"lr": 0.01}, {"lr": 0.003, "beta1": 0.5, "weight_decay": 0.1}]


def adam(lr, beta1=0.9, beta2=0.999, **rest):
    return partial(Adam, lr=lr, betas=(beta1, beta2), **rest)


CASES = [
    {"lr": 0.05},
    {"lr": 0.02, "beta1": 0.5, "beta2": 0.9},
    {"lr": 0.03, "eps": 0.1, "weight_decay": 0.2},
    {"lr": 0.01, "beta1": 0.0},
]


def test_every_step_is_that_of_torch():
    assert_steps_equal(
        [rule(rule="adam", **s) for s in CASES], [adam(**s) for s in CASES]
    )


def test_rules_of_two_kinds_train_side_by_side():
    assert_steps_equal(
        [
            rule(rule="adam", lr=0.05),
            rule(rule="sgd", lr=0.1),
            rule(rule="adam", lr=0.1),
        ],
        [adam(0.05), partial(SGD, lr=0.1), adam(0.1)],
    )
