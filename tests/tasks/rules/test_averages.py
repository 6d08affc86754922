"""What is averaged, and when; on a noisy quadratic against exact moments."""

import math

import pytest
import torch

from curvflow.tasks.numerics import stream
from curvflow.tasks.training.updates import Updates
from tests.tasks.rules.checks import (
    PROBLEM,
    STEPS_PER_EPOCH,
    gradient,
    rule,
    started,
    step_at,
    trained,
)

EXACT = {"rtol": 1e-12, "atol": 1e-13}
PLAIN = {"swa": "sgd", "gadam": "adamw", "gadamx": "padam"}
BASES = {
    "swa": {"lr": 0.05, "momentum": 0.5},
    "gadam": {"lr": 0.02, "weight_decay": 0.1},
    "gadamx": {"lr": 0.02, "p": 0.125, "amsgrad": False, "weight_decay": 0.1},
}
NAMES = sorted(BASES)


def plain(name):
    extra = {"decoupled": True} if name == "gadamx" else {}
    return rule(rule=PLAIN[name], **BASES[name], **extra)


def averaged(name, **fields):
    return rule(rule=name, **BASES[name], **fields)


def results(rules, start, steps):
    """Return the weights and the result after each step."""
    weights, updates = start, Updates(rules, start, PROBLEM)
    course = []
    for count in range(steps):
        now = step_at(count, len(rules))
        weights = updates.step(gradient(weights, count), weights, now)
        course.append((weights, updates.evaluated(weights)))
    return course


@pytest.mark.parametrize("name", NAMES)
def test_training_goes_on_as_if_nothing_were_averaged(name):
    start = started(2)
    averaging = [averaged(name, start=0, every=1), averaged(name, start=2)]
    course, _ = trained(averaging, start)
    expected, _ = trained([plain(name)] * 2, start)
    for found, without in zip(course, expected, strict=True):
        torch.testing.assert_close(found, without, **EXACT)


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
            expected, points = weights, [weights] if counted else []
        elif step % gap == 0:
            points.append(weights)
        if points:
            expected = torch.stack(points).mean(0)
        torch.testing.assert_close(result, expected, **EXACT)


def test_models_that_count_differently_are_averaged_side_by_side():
    rules = [averaged("swa", start=1, count_before=flag) for flag in (False, True)]
    (_, result), start = results(rules, started(2), 8)[-1], started(2)
    for row, one in enumerate(rules):
        (_, alone) = results([one] * 2, start[[row, row]], 8)[-1]
        torch.testing.assert_close(result[row], alone[0], **EXACT)


def test_lookahead_runs_until_averaging_begins():
    start = started(2)
    ahead = averaged("gadam", start=3, every=1, lookahead={"k": 2, "alpha": 0.3})
    inner = {"rule": "adamw", **BASES["gadam"]}
    looking = rule(rule="lookahead", inner=inner, k=2, alpha=0.3)
    course = results([ahead] * 2, start, 20)
    expected = results([looking] * 2, start, 20)
    before = 3 * STEPS_PER_EPOCH - 1
    for found, other in zip(course[:before], expected[:before], strict=True):
        torch.testing.assert_close(found, other, **EXACT)
    points = torch.stack([weights for weights, _ in course[before:]])
    torch.testing.assert_close(course[-1][1], points.mean(0), **EXACT)


def noisy(rules, *, start, sharpness, sigma, steps):
    """Step on sharpness w^2 / 2 with noise in the gradient, from one start."""
    weights = torch.full((len(rules), 50), start, dtype=torch.float64)
    updates, generator = Updates(rules, weights, PROBLEM), stream(3, "noise")
    for count in range(steps):
        noise = torch.randn(weights.shape, generator=generator, dtype=torch.float64)
        noisy_MD = sharpness * weights + sigma * noise
        weights = updates.step(noisy_MD, weights, step_at(count, len(rules)))
    return weights, updates.evaluated(weights)


def assert_drawn_from(sample, mean, variance):
    count = sample.numel()
    assert abs(sample.mean().item() - mean) < 4 * math.sqrt(variance / count)
    error = variance * math.sqrt(2 / (count - 1))
    assert abs(sample.var().item() - variance) < 4 * error


# Granziol (2020), section 7.5, as derived anew: iterates are correlated.
@pytest.mark.parametrize(("lr", "steps"), [(0.1, 100), (0.4, 100), (0.05, 30)])
def test_iterate_and_average_have_their_exact_moments(lr, steps):
    models, w_0, h, sigma = 200, 2.0, 0.5, 1.0
    a = 1 - lr * h
    rules = [rule(rule="swa", lr=lr, start=0, every=1)] * models
    weights, result = noisy(rules, start=w_0, sharpness=h, sigma=sigma, steps=steps)
    spread = lr * sigma**2 * (1 - a ** (2 * steps)) / (h * (2 - lr * h))
    assert_drawn_from(weights, a**steps * w_0, spread)
    mean = a * (1 - a**steps) * w_0 / (steps * lr * h)
    inner = steps - 2 * a * (1 - a**steps) / (1 - a)
    inner += a**2 * (1 - a ** (2 * steps)) / (1 - a**2)
    assert_drawn_from(result, mean, sigma**2 / (steps * h) ** 2 * inner)


def test_gadamx_with_half_a_power_is_gadam_and_adamw():
    shared = {"lr": 0.03, "weight_decay": 0.2}
    start = started(3)
    late = {"start": 100, **shared}
    rules = [
        rule(rule="gadamx", p=0.5, **late),
        rule(rule="gadam", **late),
        rule(rule="adamw", **shared),
    ]
    same = start[[0, 0, 0]]
    for weights, result in results(rules, same, 20):
        torch.testing.assert_close(weights, weights[[2, 2, 2]], **EXACT)
        torch.testing.assert_close(result, weights, rtol=0, atol=0)
