"""Coefficients of known posteriors against each other and against integrals."""

import math
from functools import reduce

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from curvflow.tasks.numerics.sampling import known_coefficients
from curvflow.tasks.numerics.sampling.known_coefficients import (
    crossing_coefficient,
    product_coefficient,
    well_coefficient,
)


def on_grid(powers, nbeta, gamma):
    """By the trapezoidal rule in the logarithms of all weights."""
    points = 241 if len(powers) < 3 else 181
    x = np.linspace(-25, math.log(8) - math.log(gamma) / 2, points)
    energy = nbeta * reduce(np.multiply.outer, [np.exp(2 * k * x) for k in powers])
    each = np.exp(x - gamma / 2 * np.exp(2 * x))
    weight = np.exp(-energy) * reduce(np.multiply.outer, [each] * len(powers))
    return float((weight * energy).sum() / weight.sum())


@pytest.mark.parametrize("seed", range(8))
def test_random_products_of_powers_are_integrated(seed):
    source = np.random.default_rng(seed)
    powers = source.integers(1, 5, source.integers(1, 4)).tolist()
    nbeta, gamma = 10 ** source.uniform(1, 6), 10 ** source.uniform(-2, 2)
    found = crossing_coefficient(powers, nbeta, gamma)
    assert found == pytest.approx(on_grid(powers, nbeta, gamma), rel=1e-5)


@pytest.mark.parametrize("power", [1, 2, 3, 5])
def test_one_power_is_an_ordinary_integral(power):
    nbeta, gamma = 300.0, 0.5

    def mean(f):
        def weight(w):
            return f(w) * math.exp(-nbeta * w ** (2 * power) - gamma / 2 * w**2)

        return quad(weight, 0, 8, points=[0.1, 0.3, 1.0], epsabs=0)[0]

    expected = mean(lambda w: nbeta * w ** (2 * power)) / mean(lambda _: 1.0)
    found = crossing_coefficient([power], nbeta, gamma)
    assert found == pytest.approx(expected, rel=1e-6)


def test_a_quadratic_is_all_three():
    nbeta, gamma = 70.0, 3.0
    well = well_coefficient([2.0], nbeta, gamma)
    assert crossing_coefficient([1], nbeta, gamma) == pytest.approx(well, rel=1e-9)
    one = torch.ones(1, 1, dtype=torch.float64)
    found, sem = product_coefficient([0 * one], one, 0 * one, nbeta, gamma)
    assert abs(found - well) < 4 * sem


@pytest.mark.parametrize(
    ("factors", "gamma"), [(2, 0.1), (2, 3.0), (3, 0.1), (3, 3.0), (4, 3.0)]
)
def test_a_product_of_numbers_is_a_product_of_powers(factors, gamma, monkeypatch):
    monkeypatch.setattr(known_coefficients, "SWEEPS", 500)
    one = torch.ones(1, 1, dtype=torch.float64)
    found, sem = product_coefficient([0 * one] * factors, one, 0 * one, 1e3, gamma)
    assert sem < 0.02 * found
    expected = crossing_coefficient([1] * factors, 1e3, gamma)
    assert abs(found - expected) < 4 * sem


def test_one_factor_is_linear_regression_of_the_data():
    source = torch.Generator().manual_seed(0)
    x = torch.randn(30, 3, generator=source, dtype=torch.float64)
    y = torch.randn(30, 2, generator=source, dtype=torch.float64)
    second, cross = x.mT @ x / 30, y.mT @ x / 30
    centre = cross @ torch.linalg.inv(second)
    nbeta, gamma = 40.0, 2.0
    found, sem = product_coefficient([centre], second, cross, nbeta, gamma)
    h = 2 * torch.linalg.eigvalsh(second)
    expected = well_coefficient(2 * h.tolist(), nbeta, gamma)
    assert abs(found - expected) < 4 * sem
