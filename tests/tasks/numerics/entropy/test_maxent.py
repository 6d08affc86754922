"""Densities of largest entropy."""

import math

import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.numerics.entropy.maxent import maxent, prior
from curvflow.tasks.numerics.estimators.polynomials import polynomials

UNIT = (0.0, 1.0)
FLAT = prior("flat", UNIT, 500)


def beta_moments(basis, count):
    """Moments of the density 12 x (1 - x)^2, exact to rounding."""
    x = FLAT.nodes
    F = polynomials(basis, x, count + 1, UNIT)
    return (F.T @ (12 * x * (1 - x) ** 2 * FLAT.lengths))[1:]


def fit(moments, basis="chebyshev", support=UNIT, law=FLAT, floor=1e-10, **more):
    return maxent(moments, prior=law, basis=basis, support=support, floor=floor, **more)


def test_without_moments_the_density_is_the_prior():
    result = fit(torch.zeros(0, dtype=torch.float64))
    assert result.converged
    assert result.kl == pytest.approx(0, abs=1e-12)
    assert result.entropy == pytest.approx(0, abs=1e-12)
    assert result.mean(FLAT.nodes.log()) == pytest.approx(-1, abs=1e-4)


def test_one_moment_gives_the_truncated_exponential():
    rate = 3.0
    mean = 1 / rate - 1 / math.expm1(rate)
    result = fit(torch.tensor([mean], dtype=torch.float64), basis="power")
    exact = rate * torch.exp(-rate * FLAT.nodes) / -math.expm1(-rate)
    torch.testing.assert_close(result.density, exact, rtol=1e-7, atol=0)


def test_two_moments_on_a_wide_support_give_the_gaussian():
    law = prior("flat", (-12.0, 12.0), 500)
    moments = torch.tensor([0.5, 2.25], dtype=torch.float64)  # mean 1/2, variance 2
    result = fit(moments, basis="power", support=(-12.0, 12.0), law=law)
    exact = torch.exp(-((law.nodes - 0.5) ** 2) / 4) / math.sqrt(4 * math.pi)
    torch.testing.assert_close(result.density, exact, rtol=0, atol=1e-6)
    assert result.entropy == pytest.approx(math.log(4 * math.pi * math.e) / 2, abs=1e-6)


@pytest.mark.parametrize("count", [8, 20])
def test_bases_give_the_same_density(count):
    one, other = (fit(beta_moments(b, count), b) for b in ("chebyshev", "legendre"))
    assert one.converged
    assert other.converged
    torch.testing.assert_close(one.density, other.density, rtol=0, atol=1e-7)
    exact = 12 * FLAT.nodes * (1 - FLAT.nodes) ** 2
    away_from_the_ends = (FLAT.nodes > 0.05) & (FLAT.nodes < 0.95)
    gap = (one.density - exact).abs()[away_from_the_ends].max().item()
    assert gap < 3 / count**2


def test_powers_give_the_same_density_while_they_are_few():
    one, other = (fit(beta_moments(b, 6), b) for b in ("chebyshev", "power"))
    torch.testing.assert_close(one.density, other.density, rtol=0, atol=1e-5)


def test_moments_are_met_and_the_dual_is_the_entropy():
    moments = beta_moments("chebyshev", 12)
    result = fit(moments)
    fitted = result.design.T @ result.masses
    torch.testing.assert_close(fitted, moments, rtol=0, atol=1e-9)
    assert result.dual == pytest.approx(result.entropy, abs=1e-8)
    assert result.kl == pytest.approx(-result.entropy, abs=1e-12)


def semicircle(count):
    """Chebyshev moments on [-1, 1]: E T_k = 1, 0, -1/2, 0, 0, ..."""
    moments = torch.zeros(count, dtype=torch.float64)
    moments[1] = -0.5
    return moments


def test_the_semicircle_is_found_from_its_moments():
    law = prior("flat", (-1.0, 1.0), 500)
    result = fit(semicircle(20), support=(-1.0, 1.0), law=law, floor=1e-8)
    inside = law.nodes.abs() < 0.9
    exact = 2 / torch.pi * (1 - law.nodes**2).sqrt()
    torch.testing.assert_close(
        result.density[inside], exact[inside], rtol=0.02, atol=0.0
    )


def marchenko_pastur(count, q=0.5):
    low, high = (1 - q**0.5) ** 2, (1 + q**0.5) ** 2
    angle = (torch.arange(4000, dtype=torch.float64) + 0.5) * torch.pi / 4000
    x = (low + high) / 2 + (high - low) / 2 * torch.cos(angle)
    weight = (high - low) ** 2 / 4 * angle.sin() ** 2 / (2 * q * x) / 4000
    support = (0.0, 3.2)
    moments = polynomials("chebyshev", x, count + 1, support).T @ weight
    assert moments[0].item() == pytest.approx(1, abs=1e-9)
    return moments[1:], support


def test_entropy_falls_with_every_moment_up_to_sixty():
    moments, support = marchenko_pastur(60)
    law = prior("flat", support, 300)
    result = [
        fit(moments[:count], support=support, law=law, floor=1e-5)
        for count in (0, 1, 2, 3, 5, 8, 12, 20, 30, 45, 60)
    ]
    assert all(one.converged for one in result)
    entropy = torch.tensor([one.entropy for one in result], dtype=torch.float64)
    assert (entropy.diff() < 0).all()
    assert (torch.tensor([one.dual for one in result]).diff() < 0).all()


def test_errors_of_moments_are_used_up_no_further_than_they_reach():
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(20, generator=generator, dtype=torch.float64)
    errors = torch.full((20,), 0.02, dtype=torch.float64)
    result = fit(beta_moments("chebyshev", 20) + 0.02 * noise, errors_K=errors)
    assert result.converged
    assert result.is_feasible
    assert 0.5 < result.strain < 4
    torch.testing.assert_close(result.slack, errors**2 * result.multipliers)


@pytest.mark.parametrize(
    "moments",
    [[0.5, 0.1], [0.2, 0.9], [1.2], [0.5, 0.3, 0.29, 0.1]],
    ids=["variance-below-zero", "too-wide", "outside", "fourth-too-small"],
)
def test_moments_of_no_density_are_reported(moments):
    result = fit(torch.tensor(moments, dtype=torch.float64), basis="power", floor=1e-6)
    assert not result.is_feasible
    assert not result.converged
    assert result.masses.sum().item() == pytest.approx(1)


def test_influence_is_the_derivative_by_the_moments():
    moments = beta_moments("chebyshev", 5)
    result = fit(moments, floor=1e-6, tol=1e-12)
    slopes = result.influence(FLAT.nodes.log())
    for order in range(5):
        step = torch.zeros(5, dtype=torch.float64)
        step[order] = 1e-5
        ends = [fit(moments + s * step, floor=1e-6, tol=1e-12) for s in (1, -1)]
        up, down = (end.mean(FLAT.nodes.log()) for end in ends)
        assert slopes[order].item() == pytest.approx((up - down) / 2e-5, rel=1e-4)


def test_moments_that_are_not_finite_are_refused():
    with pytest.raises(InputError, match="moments: expected finite numbers"):
        fit(torch.tensor([0.5, math.nan], dtype=torch.float64))
