"""Decay of all weights, then of those that matter least."""

import torch

from curvflow.tasks.training.updates import Updates
from tests.tasks.rules.checks import PROBLEM, STEPS_PER_EPOCH, rule, step_at, trained_on
from tests.tasks.toys import RELU_NET, blobs

# For the tests that hold for all rules.
SETTINGS = [
    {"lr": 0.05, "rate": 0.01, "selective_rate": 0.02, "omega": 0.1, "tau": 2},
    {"lr": 0.1, "rate": 0.001, "selective_rate": 0.01, "omega": 0.3, "tau": 3},
    {
        "lr": 0.05,
        "rate": 0.01,
        "selective_rate": 0.02,
        "omega": 0.1,
        "tau": 1,
        "maximum": "absolute",
        "at_equality": "protected",
    },
]

BASE = {"lr": 0.05, "decay_factor": 1.0}
SELECTED = {"omega": 0.1, "maximum": "absolute"}
EPOCHS = 4
STEPS = EPOCHS * STEPS_PER_EPOCH


def course(*rules):
    size = trained_on(blobs(), RELU_NET, rules[:1], 0)[1].network.num_parameters
    start = torch.linspace(-1, 1, size, dtype=torch.float64).roll(size // 3)
    start = start.expand(len(rules), -1)
    return torch.stack(trained_on(blobs(), RELU_NET, rules, STEPS, start=start)[0])


def both(tau, rate=0.01, selective_rate=0.05):
    return rule(
        rule="l2_stopped_selective",
        tau=tau,
        rate=rate,
        selective_rate=selective_rate,
        **BASE,
        **SELECTED,
    )


def test_epochs_before_tau_are_those_of_l2():
    whole, stopped = course(rule(rule="l2", rate=0.01, **BASE), both(2)).unbind(1)
    same = (whole == stopped).all(1).tolist()
    assert same == [step < 2 * STEPS_PER_EPOCH for step in range(STEPS)]


def test_from_the_start_it_is_the_selective_decay_at_its_own_rate():
    selective = rule(rule="selective_l2", rate=0.05, **BASE, **SELECTED)
    alone, actual = course(selective, both(0)).unbind(1)
    assert torch.equal(alone, actual)


def test_never_stopped_it_is_l2():
    whole, actual = course(rule(rule="l2", rate=0.01, **BASE), both(EPOCHS)).unbind(1)
    assert torch.equal(whole, actual)


def test_the_product_is_needed_from_tau_on_only():
    assert both(3).product_from() == 3
    weights = torch.ones(2, PROBLEM.network.num_parameters, dtype=torch.float64)
    updates = Updates([both(1)] * 2, weights, PROBLEM)
    last = step_at(STEPS_PER_EPOCH - 1, 2)
    stepped = updates.step(torch.zeros_like(weights), weights, last)
    torch.testing.assert_close(stepped, 0.99 * weights, rtol=1e-15, atol=0)
