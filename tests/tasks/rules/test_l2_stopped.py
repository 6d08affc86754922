"""Decay of all weights that stops."""

import torch

from tests.tasks.rules.checks import STEPS_PER_EPOCH, rule, trained

# For the tests that hold for all rules.
SETTINGS = [
    {"lr": 0.05, "rate": 0.01, "tau": 2},
    {"lr": 0.05, "rate": 0.002, "tau": 3, "decay_factor": 1.0},
]

L2 = {"lr": 0.05, "rate": 0.01, "decay_factor": 1.0}
EPOCHS = 5


def course(**fields):
    start = torch.linspace(-1, 1, 8, dtype=torch.float64).expand(2, -1)
    actual, _ = trained([rule(**fields)] * 2, start, EPOCHS * STEPS_PER_EPOCH)
    return torch.stack(actual)


def test_epochs_before_tau_are_those_of_l2_and_no_others():
    whole = course(rule="l2", **L2)
    for tau in (1, 3):
        stopped = course(rule="l2_stopped", tau=tau, **L2)
        same = (stopped == whole).all(2).all(1)
        assert same.tolist() == [
            step < tau * STEPS_PER_EPOCH for step in range(len(whole))
        ]


def test_never_begun_it_is_gradient_descent():
    stopped = course(rule="l2_stopped", tau=0, **L2)
    assert torch.equal(stopped, course(rule="sgd", lr=0.05))


def test_never_stopped_it_is_l2():
    stopped = course(rule="l2_stopped", tau=EPOCHS, **L2)
    assert torch.equal(stopped, course(rule="l2", **L2))


def test_no_epoch_needs_the_product():
    assert rule(rule="l2_stopped", tau=3, **L2).product_from() is None
