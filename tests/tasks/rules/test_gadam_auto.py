"""Averages that begin and end as the validation loss tells."""

import pytest
import torch
from pydantic import ValidationError

from curvflow.tasks.training.updates import Updates
from tests.tasks.rules.checks import (
    PROBLEM,
    STEPS_PER_EPOCH,
    gradient,
    rule,
    started,
    step_at,
)
from tests.tasks.toys import blobs, train_all, train_member

# For the tests that hold for all rules.
SETTINGS = [
    {"lr": 0.02, "patience": 1},
    {"lr": 0.01, "patience": 2, "every": 1, "weight_decay": 0.1},
]
TRAINING = {"validation_fraction": 0.3}

EXACT = {"rtol": 1e-12, "atol": 1e-13}
ADAMW = {"lr": 0.02, "weight_decay": 0.1}
# Two models: the first improves until epoch 3, the second until epoch 1 and again in 5.
LOSSES = [
    (3.0, 1.0),
    (2.0, 1.0),
    (1.0, 2.0),
    (1.0, 2.0),
    (1.0, 0.5),
    (1.0, 0.6),
    (5.0, 0.7),
    (0.1, 0.7),
    (0.1, float("nan")),
    (0.1, 0.1),
]


def watched(rules, start):
    """Return after each epoch its weights, the weights and the result at its end."""
    weights, updates = start, Updates(rules, start, PROBLEM)
    course = []
    for epoch, losses in enumerate(LOSSES):
        passed = []
        for count in range(epoch * STEPS_PER_EPOCH, (epoch + 1) * STEPS_PER_EPOCH):
            now = step_at(count, len(rules))
            weights = updates.step(gradient(weights, count), weights, now)
            passed.append(weights)
        updates.watch(weights, torch.tensor(losses, dtype=torch.float64))
        course.append((passed, updates.evaluated(weights), updates.tensors()))
    return course


def test_averaging_begins_and_ends_after_its_patience():
    start = started(2)
    rules = [rule(rule="gadam_auto", patience=2, **ADAMW)] * 2
    course = watched(rules, start)
    plain = watched([rule(rule="adamw", **ADAMW)] * 2, start)
    # No lower loss in the two epochs before each of these; NaN is none either.
    for model, (began, ended) in enumerate([(5, 7), (3, 7)]):
        ends = [passed[-1][model] for passed, _, _ in plain]
        for epoch, (passed, result, _) in enumerate(course, start=1):
            expected = ends[min(epoch, ended) - 1]
            torch.testing.assert_close(passed[-1][model], expected, **EXACT)
            points = ends[began : min(epoch, ended)] or [ends[epoch - 1]]
            mean = torch.stack(points).mean(0)
            torch.testing.assert_close(result[model], mean, **EXACT)


def test_after_the_end_nothing_changes():
    start = started(2)
    rules = [rule(rule="gadam_auto", patience=1, amsgrad=True, every=2, **ADAMW)] * 2
    course = watched(rules, start)
    *_, (_, before, kept), (_, after, same) = course
    torch.testing.assert_close(before, after, rtol=0, atol=0)
    for name, tensor in kept.items():
        torch.testing.assert_close(tensor, same[name], rtol=0, atol=0)


def test_the_last_weights_before_are_counted_on_request():
    rules = [
        rule(rule="gadam_auto", patience=2, every=1, count_before=flag, **ADAMW)
        for flag in (False, True)
    ]
    same = started(1)[[0, 0]]
    weights, updates = same, Updates(rules, same, PROBLEM)
    passed = []
    for epoch in range(4):
        for count in range(epoch * STEPS_PER_EPOCH, (epoch + 1) * STEPS_PER_EPOCH):
            now = step_at(count, 2)
            weights = updates.step(gradient(weights, count), weights, now)
            passed.append(weights[0])
        updates.watch(weights, torch.ones(2, dtype=torch.float64))
    began = 3 * STEPS_PER_EPOCH
    without, counted = updates.evaluated(weights)
    torch.testing.assert_close(without, torch.stack(passed[began:]).mean(0), **EXACT)
    whole = torch.stack(passed[began - 1 :]).mean(0)
    torch.testing.assert_close(counted, whole, **EXACT)


def test_the_present_weights_are_the_result_until_some_are_due():
    rules = [rule(rule="gadam_auto", patience=1, every=100, **ADAMW)] * 2
    # The second began after two epochs, and ends with this one.
    passed, result, _ = watched(rules, started(2))[2]
    torch.testing.assert_close(result[1], passed[-1][1], **EXACT)


def turns_of(losses, patience):
    """Return the epochs completed when averaging begins and ends, from all losses."""
    best, waited, turns = float("inf"), 0, []
    for epoch, loss in enumerate(losses, start=1):
        best, waited = (loss, 0) if loss < best else (best, waited + 1)
        if waited == patience:
            waited, turns = 0, [*turns, epoch]
    return turns[:2]


@pytest.mark.parametrize("patience", [2, 5])
def test_the_loss_watched_is_that_of_the_samples_set_apart(patience):
    member = train_member(
        blobs(num_samples=60),
        rule={"rule": "gadam_auto", "lr": 0.3, "patience": patience},
        epochs=60,
        batch_size=10,
        validation_fraction=0.3,
    )
    outcome, _ = train_all([member, member])
    loss = outcome.arrays["validation_loss"]
    began, ended = turns_of(loss[1:], patience)
    parameters = int(outcome.arrays["num_parameters"])
    kept = outcome.arrays["rule_state"][:-parameters]
    assert kept[-2:].tolist() == [began, ended]
    change = outcome.arrays["update_norm"]
    assert (change[1 : ended + 1] > 0).all()
    assert (change[ended + 1 :] == 0).all()
    assert (loss[ended:] == loss[ended]).all()


def test_nothing_to_watch_is_refused():
    with pytest.raises(ValidationError, match="validation_fraction above 0"):
        train_member(blobs(), rule={"rule": "gadam_auto"})
