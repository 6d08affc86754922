"""Lookahead."""

from functools import partial

import pytest
import torch
from pydantic import ValidationError

from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import pose
from curvflow.tasks.rules import functions_of
from curvflow.tasks.training.updates import Updates
from tests.tasks.rules.checks import (
    PROBLEM,
    gradient,
    rule,
    started,
    step_at,
    trained_on,
)
from tests.tasks.rules.examples import EXAMPLES
from tests.tasks.toys import RELU_NET, blobs

# For the tests that hold for all rules.
SETTINGS = [
    {"inner": {"rule": "sgd", "lr": 0.1, "momentum": 0.9}},
    {"inner": {"rule": "adamw", "lr": 0.02}, "k": 3, "alpha": 0.8},
    {"inner": {"rule": "adamw", "lr": 0.01}, "k": 3},
    {"inner": {"rule": "metric", "lr": 0.1, "rate": 0.002}, "k": 2},
    {"inner": {"rule": "ngd", "lr": 0.1, "fisher": "exact"}, "k": 2},
]

EXACT = {"rtol": 1e-12, "atol": 1e-13}
SIZE = pose(parse_model(RELU_NET), "auto", blobs()).network.num_parameters
OUTSIDE = {
    *("ema", "gadam", "gadam_auto", "gadamx", "lookahead", "swa"),
    "torch_optimizer",
    # Whose rate is told of the rule itself alone.
    *("gauss_newton", "kfac", "spectral_sgd", "spectral_swa"),
}
INNERS = {
    "sgd": partial(torch.optim.SGD, lr=0.05, momentum=0.5),
    "adam": partial(torch.optim.Adam, lr=0.05),
    "adamw": partial(torch.optim.AdamW, lr=0.05, weight_decay=0.01),
    "rmsprop": partial(torch.optim.RMSprop, lr=0.05),
    "adagrad": partial(torch.optim.Adagrad, lr=0.05),
}


def lookahead(inner, **fields):
    default = {} if "inner" in inner else {"lr": 0.05}
    return rule(rule="lookahead", inner={**default, **inner}, **fields)


def run(rules, start, steps, of=gradient, scale=None):
    weights, updates = start, Updates(rules, start, PROBLEM)
    course = []
    for count in range(steps):
        if scale:
            updates.begin_epoch(count // 4, 5)
        now = step_at(count, len(rules))
        weights = updates.step(of(weights, count), weights, now)
        course.append((weights, updates.evaluated(weights)))
    return course


@pytest.mark.parametrize(("k", "alpha"), [(5, 0.5), (1, 0.3), (3, 0.8)])
def test_slow_weights_contract_on_a_quadratic_as_they_must(k, alpha):
    h, lr, turns = torch.tensor([0.5, 1.0, 3.0, 8.0] * 2).double(), 0.1, 4
    start = started(2)
    rules = [lookahead({"rule": "sgd", "lr": lr}, k=k, alpha=alpha)] * 2
    course = run(rules, start, k * turns, of=lambda w, _: h * w)
    factor = 1 - alpha + alpha * (1 - lr * h) ** k
    for turn in range(1, turns + 1):
        fast, slow = course[k * turn - 1]
        torch.testing.assert_close(slow, factor**turn * start, **EXACT)
        torch.testing.assert_close(fast, slow, rtol=0, atol=0)


def test_between_two_moves_the_result_stays():
    rules = [lookahead({"rule": "adam"}, k=4)] * 2
    course = run(rules, started(2), 12)
    for first in (3, 7):
        for step in range(first, first + 4):
            torch.testing.assert_close(course[step][1], course[first][1])
            assert step == first or not torch.allclose(*course[step])


@pytest.mark.parametrize("name", INNERS)
def test_the_inner_rule_keeps_its_state_when_it_is_set_back(name):
    extra = {"momentum": 0.5} if name == "sgd" else {}
    settings = [{"k": 3, "alpha": 0.5}, {"k": 3, "alpha": 0.9}]
    start = started(2)
    rules = [lookahead({"rule": name, **extra}, **s) for s in settings]
    course = run(rules, start, 12)
    for row, fields in enumerate(settings):
        fast = torch.nn.Parameter(start[row].clone())
        slow, optimiser = start[row].clone(), INNERS[name]([fast])
        for step, (weights, result) in enumerate(course):
            fast.grad = gradient(fast.detach(), step)
            optimiser.step()
            if step % 3 == 2:
                slow = slow + fields["alpha"] * (fast.detach() - slow)
                fast.data = slow.clone()
            torch.testing.assert_close(weights[row], fast.detach(), **EXACT)
            torch.testing.assert_close(result[row], slow, **EXACT)


def test_a_schedule_scales_the_inner_rate():
    schedule = {"kind": "step", "at": [2], "factor": 0.1}
    plain = {"rule": "sgd", "lr": 0.05}
    rules = [lookahead(plain, schedule=schedule, k=1, alpha=1.0)] * 2
    expected = [rule(**plain, schedule=schedule)] * 2
    assert rules[0].base_lr == 0.05
    actual = run(rules, started(2), 16, scale=True)
    wanted = run(expected, started(2), 16, scale=True)
    for (weights, _), (other, _) in zip(actual, wanted, strict=True):
        torch.testing.assert_close(weights, other, **EXACT)


def test_models_of_several_inner_rates_train_side_by_side():
    rules = [lookahead({"rule": "sgd", "lr": lr}) for lr in (0.01, 0.05)]
    both = run(rules, started(2), 10)[-1][1]
    for row, spec in enumerate(rules):
        alone = run([spec] * 2, started(2)[[row, row]], 10)[-1][1]
        torch.testing.assert_close(both[row], alone[0], **EXACT)


def steps(rules):
    course, _ = trained_on(blobs(), RELU_NET, rules, 6, start=started(2, SIZE) / 2)
    return course


@pytest.mark.parametrize("name", [n for n in EXAMPLES if n not in OUTSIDE])
def test_moves_all_the_way_after_each_step_are_the_inner_rule(name):
    inner = {"rule": name, **EXAMPLES[name][1]}
    assert not hasattr(functions_of(rule(**inner)), "evaluated")
    actual = steps([lookahead(inner, k=1, alpha=1.0)] * 2)
    for weights, other in zip(actual, steps([rule(**inner)] * 2), strict=True):
        torch.testing.assert_close(weights, other, **EXACT)


@pytest.mark.parametrize("name", [n for n in EXAMPLES if n not in OUTSIDE])
def test_the_outer_rule_asks_for_what_the_inner_needs(name):
    inner = {"rule": name, **EXAMPLES[name][1]}
    outer, alone = lookahead(inner), rule(**inner)
    assert outer.product_from() == alone.product_from()
    assert outer.watches == alone.watches is False
    sizes = [(4, 3), (4,)], 8, 2
    assert outer.scratch(*sizes) == alone.scratch(*sizes)


@pytest.mark.parametrize("name", sorted(OUTSIDE))
def test_rules_with_a_result_of_their_own_are_no_inner_rules(name):
    with pytest.raises(ValidationError, match=f"tag '{name}'"):
        lookahead({"rule": name, **EXAMPLES[name][0]})


@pytest.mark.parametrize(
    "wrong",
    [{"schedule": {"kind": "cosine"}}, {"init": {"normal": 1.0}}],
    ids=["schedule", "init"],
)
def test_what_training_uses_accompanies_the_inner_rule(wrong):
    (name,) = wrong
    with pytest.raises(ValidationError, match=f"{name} cannot be combined"):
        lookahead({"rule": "sgd", **wrong})
