"""Rules with a regulariser, against a plain loop."""

import pytest
import torch

from tests.tasks.rules.checks import STEPS_PER_EPOCH, rule, trained_on
from tests.tasks.rules.regularised import (
    MASKS,
    PROBLEM,
    TAU,
    by_hand,
    numbers,
    one_step,
    rules_of,
)
from tests.tasks.toys import RELU_NET, blobs

NAMES = ["metric", "l2", "selective_l2", "l2_stopped", "l2_stopped_selective"]
REST = {
    "metric": {},
    "l2": {},
    "selective_l2": {"omega": 0.1},
    "l2_stopped": {"tau": 2},
    "l2_stopped_selective": {"tau": 2, "omega": 0.1, "selective_rate": 0.0},
}
OMEGA = 1e200
STEPS = 4 * STEPS_PER_EPOCH


def courses(*rules):
    """Return the weights of each rule along training from one start."""
    size = PROBLEM.network.num_parameters
    drawn = torch.Generator().manual_seed(0)
    start = torch.randn(1, size, generator=drawn, dtype=torch.float64)
    start = start.expand(len(rules), -1)
    course, _ = trained_on(blobs(), RELU_NET, rules, STEPS, start=start)
    return torch.stack(course).unbind(1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("epoch", [0, TAU])
def test_a_step_is_that_of_a_loop_over_the_parameters(name, epoch):
    rules = rules_of(name)
    actual, expected = one_step(rules, epoch), by_hand(rules, epoch)
    torch.testing.assert_close(actual, expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("name", NAMES)
def test_no_rate_is_gradient_descent_bit_for_bit(name):
    without = rule(rule=name, lr=0.05, rate=0.0, **REST[name])
    plain, actual = courses(rule(rule="sgd", lr=0.05), without)
    assert torch.equal(plain, actual)


def test_the_learning_rate_does_not_touch_the_regulariser():
    for name in NAMES:
        rules = [rule(rule=name, lr=lr, rate=0.3, **REST[name]) for lr in (0.01, 10)]
        weights = numbers(1, "weights").expand(2, -1)
        h = numbers(1, "product").expand(2, -1)
        slow, fast = one_step(
            rules, gradient=torch.zeros_like(h), product=h, weights=weights
        )
        assert torch.equal(slow, fast)


def test_an_infinite_bound_makes_the_selective_decay_that_of_all():
    all_of_them, selected = courses(
        rule(rule="l2", lr=0.05, rate=0.01),
        rule(rule="selective_l2", lr=0.05, rate=0.01, omega=OMEGA, maximum="absolute"),
    )
    assert torch.equal(all_of_them, selected)


def test_a_bound_of_zero_protects_all_that_has_curvature():
    h = numbers(2, "weights").abs() + 0.1
    plain, actual = one_step(
        [
            rule(rule="sgd", lr=0.05),
            rule(rule="selective_l2", lr=0.05, rate=0.5, omega=0.0),
        ],
        gradient=numbers(1, "gradient").expand(2, -1),
        product=h,
        weights=numbers(1, "weights").expand(2, -1),
    )
    assert torch.equal(plain, actual)


@pytest.mark.parametrize("mask", MASKS)
def test_the_scale_of_the_loss_does_not_change_the_mask(mask):
    rules = [rule(rule="selective_l2", lr=0.1, rate=0.5, omega=0.3, **mask)] * 2
    h, weights = numbers(1, "product"), numbers(1, "weights")
    first, other = one_step(
        rules,
        gradient=torch.zeros(2, h.shape[1], dtype=h.dtype),
        product=torch.cat([h, 1024 * h]),
        weights=weights.expand(2, -1),
    )
    assert torch.equal(first, other)
    share = (first != weights[0]).double().mean()
    assert 0 < share < 1


def test_each_tensor_has_a_largest_entry_of_its_own():
    sizes = PROBLEM.network.layout.sizes
    scales = torch.repeat_interleave(
        torch.logspace(0, 2 * len(sizes) - 2, len(sizes)), torch.tensor(sizes)
    ).double()
    h = numbers(1, "gradient").abs()
    rules = [rule(rule="selective_l2", lr=0.1, rate=0.5, omega=0.5)] * 2
    first, other = one_step(
        rules,
        gradient=torch.zeros(2, h.shape[1], dtype=h.dtype),
        product=torch.cat([h, scales * h]),
        weights=numbers(1, "weights").expand(2, -1),
    )
    assert torch.equal(first, other)
