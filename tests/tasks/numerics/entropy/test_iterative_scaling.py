"""Largest entropy by iterative scaling, which is to be compared with, not used."""

import math

import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.numerics.entropy.iterative_scaling import iterative_scaling
from curvflow.tasks.numerics.entropy.maxent import maxent, prior
from curvflow.tasks.numerics.estimators.polynomials import polynomials

UNIT = (0.0, 1.0)
FLAT = prior("flat", UNIT, 300)


def beta_moments(basis, count):
    """Moments of the density 12 x (1 - x)^2, exact to rounding."""
    x = FLAT.nodes
    F = polynomials(basis, x, count + 1, UNIT)
    return (F.T @ (12 * x * (1 - x) ** 2 * FLAT.lengths))[1:]


def scaled(moments, basis="chebyshev", **more):
    errors = torch.zeros_like(moments)
    return iterative_scaling(
        moments, errors, prior=FLAT, basis=basis, support=UNIT, **more
    )


@pytest.mark.parametrize("basis", ["chebyshev", "power"])
def test_with_rounds_enough_it_is_newton_s_density(basis):
    moments = beta_moments(basis, 2)
    result = scaled(moments, basis, max_iterations=20000)
    exact = maxent(moments, prior=FLAT, basis=basis, support=UNIT, floor=1e-10)
    assert result.converged
    assert result.entropy == pytest.approx(exact.entropy, abs=1e-7)
    torch.testing.assert_close(result.density, exact.density, rtol=0, atol=1e-5)


def test_its_multipliers_are_those_of_its_density():
    result = scaled(beta_moments("chebyshev", 5), max_iterations=7)
    again = torch.softmax(FLAT.masses.log() - result.design @ result.multipliers, 0)
    torch.testing.assert_close(result.masses, again, rtol=1e-10, atol=0)


def test_one_moment_gives_the_truncated_exponential():
    rate = 3.0
    mean = 1 / rate - 1 / math.expm1(rate)
    result = scaled(torch.tensor([mean], dtype=torch.float64), "power")
    exact = rate * torch.exp(-rate * FLAT.nodes) / -math.expm1(-rate)
    assert result.converged
    torch.testing.assert_close(result.density, exact, rtol=1e-6, atol=0)


def grid_moments(basis, support):
    """Moments of the Laplacian of a grid of 60 by 61 points plus 0.01."""
    one, other = (
        4 * torch.sin(torch.pi * torch.arange(1, n + 1).double() / (2 * n + 2)) ** 2
        for n in (60, 61)
    )
    values = (one[:, None] + other).flatten() + 0.01
    return polynomials(basis, values, 61, support).mean(0)[1:]


# Granziol (2020), Figure 2.1, tells the one of errors, and the other of entropy.
@pytest.mark.parametrize(
    ("basis", "rounds", "turn"), [("power", 500, 4), ("chebyshev", 100, 12)]
)
def test_after_a_fixed_number_of_rounds_entropy_rises_with_moments(basis, rounds, turn):
    support, orders = (0.0, 8.01), (2, 4, 8, 12, 20, 40, 60)
    law, moments = prior("flat", support, 500), grid_moments(basis, support)
    settings = {"prior": law, "basis": basis, "support": support}
    none = torch.zeros(60, dtype=torch.float64)
    scaled, newton = (
        [solve(moments[:k], none[:k], **settings, max_iterations=most) for k in orders]
        for solve, most in ((iterative_scaling, rounds), (maxent, 500))
    )
    entropies = [result.entropy for result in scaled]
    assert orders[entropies.index(min(entropies))] == turn
    after = entropies[orders.index(turn) :]
    assert after == sorted(after)
    assert not any(result.converged for result in scaled[orders.index(turn) :])
    assert not any(result.is_feasible for result in scaled[orders.index(turn) :])
    if basis == "chebyshev":
        right = [result.entropy for result in newton]
        assert right == sorted(right, reverse=True)


def test_no_moments_leave_the_prior():
    result = scaled(torch.zeros(0, dtype=torch.float64))
    assert result.converged
    assert result.kl == pytest.approx(0, abs=1e-12)


def test_moments_of_no_density_end_finite_and_flagged():
    result = scaled(torch.tensor([0.9, -0.99], dtype=torch.float64))
    assert result.masses.isfinite().all()
    assert not result.converged


def test_moments_that_are_no_numbers_are_refused():
    with pytest.raises(InputError, match="moments: expected finite numbers"):
        scaled(torch.tensor([torch.nan], dtype=torch.float64))
