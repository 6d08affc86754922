"""Averages of AdamW."""

import torch

from tests.tasks.rules.averaging import BASES, EXACT, averaged, results
from tests.tasks.rules.checks import STEPS_PER_EPOCH, gradient, rule, started

# For the tests that hold for all rules.
SETTINGS = [
    {"lr": 0.02, "start": 2},
    {"lr": 0.01, "start": 1, "every": 2, "count_before": True, "amsgrad": True},
    {"lr": 0.02, "start": 2, "lookahead": {"k": 2}},
]


def test_the_result_is_the_mean_of_what_torch_steps_through():
    start = started(2)
    (*_, (_, result)) = results([averaged("gadam", start=1, every=1)] * 2, start, 20)
    fast = torch.nn.Parameter(start.clone())
    optimiser, points = torch.optim.AdamW([fast], **BASES["gadam"]), []
    for step in range(20):
        fast.grad = gradient(fast.detach(), step)
        optimiser.step()
        points.append(fast.detach().clone())
    mean = torch.stack(points[STEPS_PER_EPOCH - 1 :]).mean(0)
    torch.testing.assert_close(result, mean, **EXACT)


def test_lookahead_runs_until_averaging_begins():
    start = started(2)
    ahead = averaged("gadam", start=3, every=1, lookahead={"k": 2, "alpha": 0.3})
    inner = {"rule": "adamw", **BASES["gadam"]}
    looking = rule(rule="lookahead", inner=inner, k=2, alpha=0.3)
    course = results([ahead] * 2, start, 20)
    expected = results([looking] * 2, start, 20)
    before = 3 * STEPS_PER_EPOCH - 1
    for actual, other in zip(course[:before], expected[:before], strict=True):
        torch.testing.assert_close(actual, other, **EXACT)
    points = torch.stack([weights for weights, _ in course[before:]])
    torch.testing.assert_close(course[-1][1], points.mean(0), **EXACT)
