"""Rates and momenta that are best for quadratics."""

import math

import pytest
import torch

from curvflow.tasks.numerics.estimators.learning_rates import best_rates, extremes
from tests.tasks.toys import with_spectrum

FORMS = ["polyak", "nesterov", "nesterov_quadratic"]


def one(*values):
    return torch.tensor([[value] for value in values], dtype=torch.float64)


def radius(eigenvalue, rate, momentum, form):
    """Return the spectral radius of the iteration along one eigenvector.

    The iteration is that of torch.optim.SGD, on weights and velocity.
    """
    ahead = form != "polyak"
    a, rho, h = rate, momentum, eigenvalue
    # v' = rho v + h w; w' = w - a v', or w - a (h w + rho v').
    if ahead:
        rows = [[1 - a * h - a * rho * h, -a * rho * rho], [h, rho]]
    else:
        rows = [[1 - a * h, -a * rho], [h, rho]]
    return torch.linalg.eigvals(torch.tensor(rows, dtype=torch.float64)).abs().max()


def worst(smallest, largest, form, most=0.9999999):
    rate, rho = best_rates(one(smallest), one(largest), form, one(most))
    inside = torch.linspace(smallest, largest, 401).tolist()
    return max(radius(h, rate.item(), rho.item(), form).item() for h in inside)


@pytest.mark.parametrize(("smallest", "largest"), [(0.5, 50.0), (0.005, 0.5)])
def test_the_iteration_converges_at_the_theoretical_rate(smallest, largest):
    kappa = largest / smallest
    theory = {
        "polyak": (math.sqrt(kappa) - 1) / (math.sqrt(kappa) + 1),
        "nesterov": 1 - 1 / math.sqrt(kappa),
        "nesterov_quadratic": 1 - 2 / math.sqrt(3 * kappa + 1),
    }
    # Where roots meet, rounding moves them by its root.
    for form in FORMS:
        assert worst(smallest, largest, form) == pytest.approx(theory[form], abs=1e-4)


def test_the_printed_rate_of_polyak_does_not_converge():
    root = math.sqrt(50) + math.sqrt(0.5)
    rho = ((math.sqrt(50) - math.sqrt(0.5)) / root) ** 2
    assert radius(50.0, 2 / root, rho, "polyak") == pytest.approx(11.1, abs=0.1)


@pytest.mark.parametrize("form", FORMS)
def test_a_bounded_momentum_is_reached_and_the_iteration_is_still_stable(form):
    _, rho = best_rates(one(1e-9), one(3.0), form, one(0.9))
    assert rho.item() == pytest.approx(0.9, rel=1e-12)
    assert worst(1e-9, 3.0, form, most=0.9) < 1 + 1e-9


@pytest.mark.parametrize("form", FORMS)
def test_equal_eigenvalues_need_no_momentum(form):
    rate, rho = best_rates(one(2.0), one(2.0), form, one(0.99))
    assert rho.item() == pytest.approx(0, abs=1e-12)
    assert rate.item() == pytest.approx(0.5)


def test_the_heaviest_ritz_value_is_left_out_if_it_outweighs_the_others():
    values = torch.tensor([[0.01, 1.0, 5.0]] * 2, dtype=torch.float64)
    weights = torch.tensor([[0.6, 0.3, 0.1], [0.4, 0.35, 0.25]], dtype=torch.float64)
    smallest, largest = extremes(values, weights, one(0.5, 0.5))
    assert smallest.flatten().tolist() == [1.0, 0.01]
    assert largest.flatten().tolist() == [5.0, 5.0]


def test_values_that_are_not_positive_or_lie_behind_a_breakdown_are_left_out():
    values = torch.tensor([[-3.0, 0.2, 4.0, 0.0], [-3.0, -1.0, 0.0, 0.0]]).double()
    weights = torch.tensor([[0.3, 0.3, 0.4, 0.0], [0.5, 0.5, 0.0, 0.0]]).double()
    smallest, largest = extremes(values, weights, one(0.5, 0.5))
    assert smallest[0].item() == pytest.approx(0.2)
    assert largest[0].item() == 4.0
    assert torch.isnan(smallest[1]).all()
    assert torch.isnan(largest[1]).all()


def test_a_spectrum_of_one_point_keeps_it():
    values = torch.tensor([[2.0, 0.0]], dtype=torch.float64)
    weights = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    smallest, largest = extremes(values, weights, one(0.5))
    assert smallest.item() == largest.item() == 2.0


def test_a_known_quadratic_is_minimised_at_that_rate():
    eigenvalues = torch.linspace(0.5, 50, 12, dtype=torch.float64)
    A = with_spectrum(eigenvalues, 0)
    rate, rho = best_rates(one(0.5), one(50.0), "polyak", one(0.99))
    w, v = torch.ones(12, dtype=torch.float64), torch.zeros(12, dtype=torch.float64)
    for _ in range(100):
        v = rho * v + w @ A
        w = w - rate * v
    # 0.8182 per step, times the number of steps for the roots that meet.
    assert w.norm() < 100 * 0.8182**100 * 12**0.5
