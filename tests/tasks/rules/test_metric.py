"""The regulariser that follows the curvature."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from curvflow.schemas.kinds.shared.datasets import dataset
from tests.tasks.rules.checks import rule, trained_on
from tests.tasks.rules.regularised import numbers, one_step
from tests.tasks.toys import as_data

# For the tests that hold for all rules.
SETTINGS = [
    {"lr": 0.05, "rate": 0.001},
    {"lr": 0.1, "rate": 0.002},
    {"lr": 0.1, "rate": 0.002, "form": "raw"},
]

LINEAR = {"kind": "linear", "bias": False}


def test_on_a_linear_regression_raw_shrinks_the_solution_alike_in_all_directions():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 4)) * [1, 2, 0.7, 1.5], rng.normal(size=(40, 1))
    rates = [(0.1, 0.02), (0.06, 0.06), (0.02, 0.1)]
    rules = [rule(rule="metric", lr=a, rate=lam, form="raw") for a, lam in rates]
    course, _ = trained_on(as_data(dataset(x, y)), LINEAR, rules, 500, "mse")
    solution = np.linalg.lstsq(x, y, rcond=None)[0].ravel()
    for weights, (lr, rate) in zip(course[-1], rates, strict=True):
        expected = lr / (lr + rate) * solution
        np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-12)


def test_by_itself_no_magnitude_grows_while_the_product_is_small():
    weights, h = numbers(3, "weights"), numbers(3, "product")
    rate = 0.3
    h = torch.minimum(h.abs(), 2 * weights.abs() / rate) * h.sign()
    (moved,) = one_step(
        [rule(rule="metric", lr=0.1, rate=rate)],
        gradient=torch.zeros_like(h[:1]),
        product=h[:1],
        weights=weights[:1],
    )
    before = weights[0]
    assert (moved.abs() <= before.abs() * (1 + 1e-15)).all()
    inside = rate * h[0].abs() < before.abs()
    assert 0 < inside.double().mean() < 1
    assert torch.equal(moved[inside].sign(), before[inside].sign())


def test_a_weight_of_zero_is_not_regularised():
    h = numbers(1, "gradient")
    weights = torch.zeros_like(h)
    rules = [rule(rule="metric", lr=0.1, rate=0.3)]
    moved = one_step(rules, gradient=weights, product=h, weights=weights)
    assert torch.equal(moved, weights)


def test_an_unknown_form_is_refused():
    with pytest.raises(ValidationError, match="abs_sign"):
        rule(rule="metric", lr=0.1, rate=0.1, form="absolute")


def test_the_product_is_needed_from_the_first_epoch():
    assert rule(rule="metric", lr=0.1, rate=0.1).product_from() == 0
