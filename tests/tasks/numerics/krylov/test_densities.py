"""Densities smoothed from Ritz data, against those of all eigenvalues."""

from math import comb

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.numerics import BatchedDense, density, lanczos, stream
from curvflow.tasks.numerics.krylov.quadrature import extremes
from tests.tasks.numerics.krylov.test_functionals import case_of
from tests.tasks.toys import with_spectrum

SIZE = 60
SPECTRA = [np.linspace(-1, 3, SIZE), np.geomspace(1e-3, 1, SIZE), np.ones(SIZE)]


def signs(*shape, seed=0):
    generator = stream(seed, "t")
    return torch.randn(shape, generator=generator, dtype=torch.float64).sign()


@pytest.fixture(scope="module")
def known():
    """Return Ritz data of ten steps of three matrices."""
    A = torch.stack([with_spectrum(s, seed=n) for n, s in enumerate(SPECTRA)])
    return lanczos(BatchedDense(A), signs(len(A), SIZE, 6), num_steps=10)


def test_a_density_has_integral_one_and_the_width_requested(known):
    grid = torch.linspace(-3, 6, 900).double()
    scaled, result = (
        density(known, grid, **settings)
        for settings in ({"kappa": 0.02}, {"sigma": 0.1})
    )
    for each in (scaled, result):
        mid = (each.values[:, 1:] + each.values[:, :-1]) / 2
        integral = (mid * grid.diff()).sum(1)
        np.testing.assert_allclose(integral, 1, rtol=1e-6)
    assert result.sigma.tolist() == [0.1] * 3
    low, high = extremes(known)
    assert scaled.sigma[0] == 0.02 * (high - low)[0]
    assert scaled.sigma[2].item() == pytest.approx(0.02)


def test_smoothing_biases_moments_as_the_binomial_theorem_says(known):
    # Granziol (2020), theorem 2, with C(m, 2j) in place of C(m - 1, 2j) for odd m.
    width, grid = 0.4, torch.linspace(-4, 7, 1001).double()
    smoothed = density(known, grid, sigma=width).values
    # Where a run has ended there is nothing.
    values, weights = (
        part.nan_to_num(0.0).reshape(len(SPECTRA), -1)
        for part in (known.values, known.weights)
    )
    weights = weights / weights.sum(1, keepdim=True)
    for m in range(1, 7):
        moment = torch.trapezoid(smoothed * grid**m, grid)
        plain = (weights * values**m).sum(1)
        bias = sum(
            comb(m, 2 * j)
            * width ** (2 * j)
            * np.prod(np.arange(2 * j - 1, 0, -2))
            * (weights * values ** (m - 2 * j)).sum(1)
            for j in range(1, m // 2 + 1)
        ) + torch.zeros(3)
        np.testing.assert_allclose(moment - plain, bias, atol=1e-6)
        if m == 3:  # as printed it is a third of that
            assert (moment - plain)[1] > 2 * bias[1] / 3 > 0


def test_a_density_of_two_widths_or_none_is_refused(known):
    for settings in ({}, {"sigma": 0.1, "kappa": 0.1}):
        with pytest.raises(InputError, match="sigma: expected one width"):
            density(known, torch.zeros(1), **settings)


def test_a_semicircle_is_drawn_from_few_steps():
    X = torch.randn(300, 300, generator=stream(0, "law"), dtype=torch.float64)
    A = (X + X.T)[None] / (600**0.5)
    ritz = lanczos(BatchedDense(A), signs(1, 300, 10), num_steps=40)
    grid = torch.linspace(-1.8, 1.8, 50).double()
    law = (4 - grid**2).sqrt() / (2 * torch.pi)
    result = density(ritz, grid, sigma=0.2).values[0]
    assert (result - law).abs().max() < 0.04


def kernel(values_D, grid_G, sigma):
    scaled = (grid_G[:, None] - values_D) / sigma
    return torch.exp(-scaled.square() / 2) / (sigma * (2 * torch.pi) ** 0.5)


def test_what_the_runs_say_of_their_own_vectors_is_bounded_in_random_cases():
    inside, small = [], []
    for number in range(60):
        case = case_of(number, negative=number % 2 == 0)
        low, high = float(case.values_D.min()), float(case.values_D.max())
        sigma = (high - low) * 10 ** -np.random.default_rng(number).uniform(0.5, 3)
        grid_G = torch.linspace(low - sigma, high + sigma, 40).double()
        found = density(case.ritz, grid_G, sigma=sigma).found
        exact_GS = kernel(case.values_D, grid_G, sigma) @ case.weights_DS
        slack = 1e-9 * float(exact_GS.max())
        above, below = found.upper[0] + slack, found.lower[0] - slack
        inside.append(((below <= exact_GS) & (exact_GS <= above)).double().mean())
        small.append(float(found.rule_error.max() / found.estimate.mean.max()) < 0.05)
    assert np.mean(inside) > 0.999
    assert 0.1 < np.mean(small) < 0.9


def test_intervals_cover_the_density_of_all_eigenvalues():
    covered = []
    for number in range(100):
        case = case_of(number, negative=number % 2 == 0)
        low, high = float(case.values_D.min()), float(case.values_D.max())
        grid_G = torch.linspace(low, high, 9).double()
        smooth = density(case.ritz, grid_G, kappa=0.1)
        exact_G = kernel(case.values_D, grid_G, float(smooth.sigma)).mean(1)
        ends = smooth.found.of_model(0).interval()
        slack = 1e-9 * exact_G.max()
        inside_G = (ends[0] <= exact_G + slack) & (exact_G - slack <= ends[1])
        covered.append(inside_G.double().mean())
    assert np.mean(covered) > 0.93


def test_points_beyond_a_chunk_change_nothing(known):
    grid_G = torch.linspace(-2, 4, 300).double()
    whole, part = (
        density(known, grid_G, sigma=0.2),
        density(known, grid_G[280:], sigma=0.2),
    )
    assert torch.equal(whole.values[:, 280:], part.values)
    assert torch.equal(whole.sem[:, 280:], part.sem)
