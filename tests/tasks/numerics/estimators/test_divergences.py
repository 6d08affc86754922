"""Distances of spectra: closed forms against quadrature, and against SciPy."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from curvflow.errors import InputError
from curvflow.tasks.numerics.entropy.maxent import maxent, prior
from curvflow.tasks.numerics.estimators.divergences import (
    Family,
    Measure,
    entropic_measure,
    heat_distance,
    js,
    kl,
    symmetric_kl,
    wasserstein1,
)

UNIT = (0.0, 1.0)
POWERS = Family(UNIT, "flat", "power", UNIT)
CHEBYSHEV = Family((-1.0, 1.0), "flat", "chebyshev", (-1.0, 1.0))


def measure(*multipliers, family=POWERS, points=400):
    rows = torch.tensor(multipliers, dtype=torch.float64)
    return entropic_measure(rows, family, points)


def cloud(count, seed):
    random = np.random.default_rng(seed)
    weights = random.random((3, count))
    weights /= weights.sum(1, keepdims=True)
    points = np.sort(random.normal(size=count))
    return Measure(torch.as_tensor(points), torch.as_tensor(weights))


def quadrature(p, q):
    """KL by the integral of p log p / q on the nodes that both have."""
    return torch.special.xlogy(p.weights, p.weights / q.weights).sum(1)


def test_truncated_exponentials_have_their_known_divergence():
    # exp(-a x) on [0, 1]: log Z = log((1 - exp(-a)) / a), mean 1 / a - 1 / (e^a - 1).
    def log_z(a):
        return math.log(-math.expm1(-a) / a)

    def known(a, b):
        mean = 1 / a - 1 / math.expm1(a)
        return log_z(b) - log_z(a) - (a - b) * mean

    p, q = measure([3.0], [1.0]), measure([0.5], [1.0])
    assert kl(p, q).tolist() == pytest.approx([known(3, 0.5), 0], abs=1e-12)
    both = (known(3, 0.5) + known(0.5, 3)) / 2
    assert symmetric_kl(p, q).tolist() == pytest.approx([both, 0], abs=1e-12)


@pytest.mark.parametrize("orders", [(2, 9), (9, 2), (9, 9)])
@pytest.mark.parametrize("name", ["flat", "arcsine"])
def test_closed_forms_equal_the_integrals_of_fitted_densities(orders, name):
    random = np.random.default_rng(0)
    family = Family((-1.0, 1.0), name, "legendre", (-1.0, 1.0))
    nodes = prior(name, family.support, 400)
    fits = []
    for count in orders:
        x = torch.as_tensor(random.beta(2, 3, size=40) * 2 - 1)
        means = family.polynomials(x, count + 1).mean(0)[1:]
        errors = torch.full_like(means, 0.02)  # so that moments are not met exactly
        found = maxent(
            means, errors, prior=nodes, basis="legendre", support=family.basis_support
        )
        fits.append(
            entropic_measure(found.multipliers[None], family, 400, num_moments=9)
        )
        torch.testing.assert_close(fits[-1].weights[0], found.masses)
    p, q = fits
    torch.testing.assert_close(kl(p, q), quadrature(p, q), rtol=1e-9, atol=1e-12)
    both = (quadrature(p, q) + quadrature(q, p)) / 2
    torch.testing.assert_close(symmetric_kl(p, q), both, rtol=1e-9, atol=1e-12)
    assert both > 0.01
    middle = Measure(p.points, (p.weights + q.weights) / 2)
    halves = (quadrature(p, middle) + quadrature(q, middle)) / 2
    torch.testing.assert_close(js(p, q), halves, rtol=1e-9, atol=1e-12)
    assert float(js(p, q)) < math.log(2)


def test_other_nodes_of_the_integrals_give_the_same_divergence():
    def density(a, b):
        def plain(x):
            return math.exp(-a * x - b * x * x)

        total = integrate.quad(plain, 0, 1)[0]
        return lambda x: plain(x) / total

    one, other = density(3, -2), density(0.5, 1)
    known = integrate.quad(lambda x: one(x) * math.log(one(x) / other(x)), 0, 1)[0]
    p = measure([3.0, -2.0], points=300)
    for q in (measure([0.5, 1.0], points=300), measure([0.5, 1.0], points=500)):
        assert float(kl(p, q)) == pytest.approx(known, rel=1e-9)


def test_divergences_are_finite_where_a_density_underflows():
    p, q = measure([2000.0]), measure([-2000.0])
    assert float(q.weights[0, 0]) == 0
    assert float(kl(p, q)) == pytest.approx(2000 * (1 - 2 / 2000), rel=1e-2)
    assert float(js(p, q)) == pytest.approx(math.log(2), rel=1e-9)


def test_wasserstein_s_distance_is_that_of_scipy():
    p, q = cloud(30, 0), cloud(50, 1)
    known = [
        stats.wasserstein_distance(p.points, q.points, *pair)
        for pair in zip(p.weights.numpy(), q.weights.numpy(), strict=True)
    ]
    assert wasserstein1(p, q).tolist() == pytest.approx(known, rel=1e-12)
    assert wasserstein1(p, p).tolist() == pytest.approx([0] * 3, abs=1e-15)


def test_heat_traces_are_means_of_exponentials():
    p, q, times = cloud(30, 0), cloud(50, 1), torch.tensor([0.0, 0.5, 2.0]).double()
    rows = [
        [float(w @ torch.exp(-t * m.points)) for t in times]
        for m in (p, q)
        for w in m.weights
    ]
    known = np.linalg.norm(np.array(rows[:3]) - np.array(rows[3:]), axis=1)
    found = heat_distance(p.heat_traces(times), q.heat_traces(times))
    assert found.tolist() == pytest.approx(known, rel=1e-12)


@pytest.mark.parametrize(
    ("family", "words"),
    [
        (Family((0.0, 2.0), "flat", "power", UNIT), r"one support, got \[0, 1\] and"),
        (Family(UNIT, "arcsine", "power", UNIT), "one prior, got flat and arcsine"),
        (Family(UNIT, "flat", "legendre", UNIT), "one basis, got power and legendre"),
        (Family(UNIT, "flat", "power", (0.0, 2.0)), r"support, got \[0, 1\] and \[0"),
    ],
)
def test_multipliers_of_different_families_are_refused(family, words):
    with pytest.raises(InputError, match=words):
        kl(measure([1.0]), measure([1.0], family=family))


def test_the_covariance_of_multipliers_is_that_of_fits_to_changed_moments():
    nodes = prior("flat", CHEBYSHEV.support, 300)
    means = torch.tensor([0.1, -0.3, 0.05], dtype=torch.float64)
    errors = torch.tensor([0.02, 0.01, 0.03], dtype=torch.float64)

    def multipliers(moments):
        return maxent(
            moments,
            errors,
            prior=nodes,
            basis="chebyshev",
            support=CHEBYSHEV.basis_support,
            tol=1e-13,
        )

    step = 1e-5
    slopes = torch.stack(
        [
            (multipliers(means + h).multipliers - multipliers(means - h).multipliers)
            / (2 * step)
            for h in step * torch.eye(3).double()
        ],
        dim=1,
    )
    root = torch.tensor([[2.0, 0, 0], [1, 1, 0], [0, 1, 0]]).double() / 100
    covariance = root @ root.T
    got = multipliers(means).multipliers_covariance(covariance)
    known = slopes @ covariance @ slopes.T
    torch.testing.assert_close(got, known, rtol=1e-5, atol=1e-9)
