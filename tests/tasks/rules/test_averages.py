"""Weights that are averaged, and the steps at which they are."""

import pytest
import torch

from tests.tasks.rules.averaging import BASES, EXACT, averaged, results
from tests.tasks.rules.checks import STEPS_PER_EPOCH, rule, started, trained

PLAIN = {"swa": "sgd", "gadam": "adamw", "gadamx": "padam"}
NAMES = sorted(BASES)


def plain(name):
    extra = {"decoupled": True} if name == "gadamx" else {}
    return rule(rule=PLAIN[name], **BASES[name], **extra)


@pytest.mark.parametrize("name", NAMES)
def test_training_goes_on_as_if_nothing_were_averaged(name):
    start = started(2)
    averaging = [averaged(name, start=0, every=1), averaged(name, start=2)]
    course, _ = trained(averaging, start)
    expected, _ = trained([plain(name)] * 2, start)
    for actual, without in zip(course, expected, strict=True):
        torch.testing.assert_close(actual, without, **EXACT)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("every", [1, 3, "epoch"])
@pytest.mark.parametrize("counted", [False, True])
def test_the_result_is_the_plain_mean_of_the_weights_that_are_due(name, every, counted):
    first = 2
    rules = [averaged(name, start=first, every=every, count_before=counted)] * 2
    course = results(rules, started(2), 20)
    gap = STEPS_PER_EPOCH if every == "epoch" else every
    points = []
    for step, (weights, result) in enumerate(course, start=1):
        if step < first * STEPS_PER_EPOCH:
            points = [weights] if counted else []
        elif step % gap == 0:
            points.append(weights)
        expected = torch.stack(points).mean(0) if points else weights
        torch.testing.assert_close(result, expected, **EXACT)


def test_models_that_count_differently_are_averaged_side_by_side():
    rules = [averaged("swa", start=1, count_before=flag) for flag in (False, True)]
    (_, result), start = results(rules, started(2), 8)[-1], started(2)
    for row, spec in enumerate(rules):
        (_, alone) = results([spec] * 2, start[[row, row]], 8)[-1]
        torch.testing.assert_close(result[row], alone[0], **EXACT)
