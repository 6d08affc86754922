"""Gradient descent that takes its rate from the spectrum."""

import numpy as np
import pytest
import torch

from curvflow.schemas.models import parse_model
from curvflow.schemas.rules import Position
from curvflow.tasks.networks.problems import load_samples, pose
from curvflow.tasks.numerics import dense_hessian
from curvflow.tasks.numerics.estimators.learning_rates import best_rates
from curvflow.tasks.training.updates import Updates
from tests.tasks.rules.checks import (
    STEPS_PER_EPOCH,
    rule,
    started,
    step_at,
    trained_on,
)
from tests.tasks.toys import as_data, blobs, train_all, train_member, waves

# For the tests that hold for all rules.
SETTINGS = [
    {"refresh_every": 2, "max_momentum": 0.3},
    {"momentum": "polyak", "max_momentum": 0.1, "num_steps": 8, "matrix": "ggn"},
    {"momentum": "nesterov_quadratic", "max_momentum": 0.2, "first_refresh": 3},
]

LINEAR = {"kind": "linear"}
FORMS = ["polyak", "nesterov", "nesterov_quadratic"]


def regression(loss="mse"):
    """Return a convex quadratic: data, its Hessian, and where it is least."""
    arrays = dict(waves().arrays)
    arrays["inputs"] = arrays["inputs"] * [3.0, 1.0, 0.3]
    data = as_data(arrays, "stretched")
    problem = pose(parse_model(LINEAR), loss, data)
    samples = load_samples(problem, [data], "", "cpu", torch.float64)
    start = started(1, problem.network.num_parameters)[0]
    share = samples.count if loss == "sse" else 1
    H = share * dense_hessian(
        problem.losses, start, samples.inputs[0], samples.targets[0]
    )

    def mean(weights):
        arrays = problem.losses(weights[None], samples.inputs, samples.targets)
        return share * arrays.mean()

    least = start - torch.linalg.solve(H, torch.func.grad(mean)(start))
    return data, problem, H, least


@pytest.mark.parametrize("loss", ["mse", "sse"])
@pytest.mark.parametrize("form", FORMS)
def test_the_rates_are_those_of_the_dense_spectrum(form, loss):
    data, problem, H, _ = regression(loss)
    spectral = rule(rule="spectral_sgd", momentum=form, bulk_above=1.0, matrix="ggn")
    values = torch.linalg.eigvalsh(H)
    samples = load_samples(problem, [data], "", "cpu", torch.float64)
    weights = started(2, problem.network.num_parameters)
    updates = Updates([spectral, spectral], weights, problem)
    now = step_at(0, 2, batch=samples, problem=problem)
    updates.step(torch.zeros_like(weights), weights, now)
    rate, momentum = updates.rates(Position(0, 10))
    ends = values[[0]][:, None], values[[-1]][:, None]
    expected = best_rates(*ends, form, torch.tensor([[0.99]], dtype=torch.float64))
    assert rate.tolist() == pytest.approx([expected[0].item()] * 2, rel=1e-9)
    assert momentum.tolist() == pytest.approx([expected[1].item()] * 2, rel=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_a_quadratic_converges_at_the_theoretical_rate(form):
    data, _, H, least = regression()
    values = torch.linalg.eigvalsh(H)
    root = float((values[-1] / values[0]).sqrt())
    theory = {
        "polyak": (root - 1) / (root + 1),
        "nesterov": 1 - 1 / root,
        "nesterov_quadratic": 1 - 2 / (3 * root**2 + 1) ** 0.5,
    }[form]
    spectral = rule(rule="spectral_sgd", momentum=form, bulk_above=1.0)
    course, _ = trained_on(data, LINEAR, [spectral] * 2, 61, loss="mse")
    early, late = ((course[step] - least).norm(dim=1) for step in (20, 60))
    # Roots that meet add a factor of the number of steps.
    assert ((late / early) ** (1 / 40) < theory * 3 ** (1 / 40)).all()


def test_with_the_rate_it_chose_it_steps_as_sgd_does():
    made = [
        train_member(
            blobs(),
            model=LINEAR,
            rule={"rule": "spectral_sgd", "momentum": form, "max_momentum": 0.6},
            epochs=3,
            batch_size=10,
        )
        for form in ("polyak", "nesterov")
    ]
    outcomes = train_all(made)
    for outcome, nesterov in zip(outcomes, (False, True), strict=True):
        chosen = {"lr": outcome.arrays["lr"][-1], "nesterov": nesterov}
        chosen |= {"momentum": outcome.arrays["chosen_momentum"][-1], "rule": "sgd"}
        again = train_member(
            blobs(), model=LINEAR, rule=chosen, epochs=3, batch_size=10
        )
        (other, _) = train_all([again, again])
        np.testing.assert_allclose(
            outcome.arrays["weights"], other.arrays["weights"], rtol=1e-9
        )


def test_rate_and_momentum_are_recorded_as_they_change():
    fields = {"rule": "spectral_sgd", "lr": 0.07, "first_refresh": 1}
    fields |= {"refresh_every": 2, "max_momentum": 0.4}
    made = train_member(blobs(), rule=fields, epochs=5, batch_size=10)
    outcome, _ = train_all([made, made])
    rate, momentum = outcome.arrays["lr"], outcome.arrays["chosen_momentum"]
    assert rate[:2].tolist() == [0.07, 0.07]
    assert momentum[:2].tolist() == [0.0, 0.0]
    assert rate[2] == rate[3] != 0.07
    assert rate[4] == rate[5] != rate[2]
    assert ((momentum[2:] > 0) & (momentum[2:] <= 0.4)).all()


def test_a_schedule_multiplies_what_was_chosen():
    schedule = {"kind": "step", "at": [2], "factor": 0.5}
    made = [
        train_member(
            blobs(),
            rule={"rule": "spectral_sgd", "max_momentum": 0.2, "schedule": schedule_of},
            epochs=3,
        )
        for schedule_of in (None, schedule)
    ]
    kept, stepped = (outcome.arrays["lr"] for outcome in train_all(made))
    assert kept[1] == kept[3]
    np.testing.assert_allclose(stepped[1:], kept[1:] * [1, 1, 0.5], rtol=1e-12)


def test_a_spectrum_without_positive_values_changes_nothing():
    data, problem, _, _ = regression()
    spectral = rule(rule="spectral_sgd", lr=0.3)
    samples = load_samples(problem, [data], "", "cpu", torch.float64)
    weights = torch.full((2, problem.network.num_parameters), torch.nan).double()
    updates = Updates([spectral, spectral], weights, problem)
    now = step_at(STEPS_PER_EPOCH * 20, 2, batch=samples, problem=problem)
    updates.step(weights, weights, now)
    rate, momentum = updates.rates(Position(20, 40))
    assert rate.tolist() == [0.3, 0.3]
    assert momentum.tolist() == [0.0, 0.0]
