"""Gradients that are shortened to a norm."""

from functools import partial

import pytest
import torch
from pydantic import ValidationError

from curvflow.tasks.training.updates import Updates
from tests.tasks.rules.checks import (
    PROBLEM,
    gradient,
    rule,
    started,
    step_at,
    trained,
    trained_on,
)
from tests.tasks.toys import TANH_NET, blobs

EXACT = {"rtol": 1e-12, "atol": 1e-13}
OPTIMISERS = {
    "sgd": partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=0.1),
    "adam": partial(torch.optim.Adam, lr=0.05),
}
FIELDS = {
    "sgd": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1},
    "adam": {"lr": 0.05},
}
CLIPS = [0.3, 2.0, None, 1e9]


@pytest.mark.parametrize("name", OPTIMISERS)
def test_every_step_is_that_of_torch_with_clipped_gradients(name):
    start = started(len(CLIPS))
    rules = [rule(rule=name, clip_norm=clip, **FIELDS[name]) for clip in CLIPS]
    course, _ = trained(rules, start)
    is_clipped = []
    for row, clip in enumerate(CLIPS):
        weight = torch.nn.Parameter(start[row].clone())
        optimiser = OPTIMISERS[name]([weight])
        for count, weights in enumerate(course):
            weight.grad = gradient(weight.detach(), count)
            if clip is not None:
                norm = torch.nn.utils.clip_grad_norm_([weight], clip)
                is_clipped.append(bool(norm > clip))
            optimiser.step()
            torch.testing.assert_close(weights[row], weight.detach(), **EXACT)
    assert True in is_clipped
    assert False in is_clipped


def test_models_without_a_bound_are_not_touched():
    plain = rule(rule="sgd", lr=0.05)
    both, _ = trained([plain, rule(rule="sgd", lr=0.05, clip_norm=0.1)], started(2))
    alone, _ = trained([plain] * 2, started(2))
    assert torch.equal(both[-1][0], alone[-1][0])
    assert not torch.allclose(both[-1][1], alone[-1][1], rtol=1e-3)


def test_a_gradient_of_zero_stays_and_one_that_is_not_finite_is_its_own_affair():
    rules = [rule(rule="sgd", lr=1.0, clip_norm=1.0)] * 3
    start = started(3)
    slope = torch.ones_like(start)
    slope[0] = 0.0
    slope[1, 0] = torch.nan
    moved = Updates(rules, start, PROBLEM).step(slope, start, step_at(0, 3)) - start
    assert torch.equal(moved[0], torch.zeros_like(moved[0]))
    assert moved[1].isnan().all()
    assert moved[2].norm().item() == pytest.approx(1, rel=1e-5)


def test_the_second_gradient_of_sam_is_shortened_and_its_direction_stays():
    start = started(2, 45)
    inner = {"rule": "sgd", "lr": 0.3}
    rules = [rule(rule="sam", inner=inner, clip_norm=clip) for clip in (1e-3, None)]
    (end,), _ = trained_on(blobs(), TANH_NET, rules, 1, start=start[[0, 0]])
    short, long = end - start[[0, 0]]
    assert short.norm().item() == pytest.approx(0.3 * 1e-3, rel=2e-3)
    assert torch.cosine_similarity(short, long, dim=0).item() == pytest.approx(1)
    assert long.norm() > 10 * short.norm()


def test_the_bound_stands_beside_a_rule_within_and_is_above_0():
    inner = {"rule": "sgd", "lr": 0.1, "clip_norm": 1.0}
    with pytest.raises(ValidationError, match="Move it to lookahead itself"):
        rule(rule="lookahead", inner=inner)
    with pytest.raises(ValidationError, match="greater than 0"):
        rule(rule="sgd", lr=0.1, clip_norm=0.0)
