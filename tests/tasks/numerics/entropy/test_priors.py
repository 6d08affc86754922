"""Densities that know nothing."""

import math

import pytest

from curvflow.errors import InputError
from curvflow.tasks.numerics.entropy.maxent import PRIORS, prior


@pytest.mark.parametrize("name", PRIORS)
def test_masses_sum_to_one_and_lengths_to_the_interval(name):
    result = prior(name, (0.5, 4.0), 200)
    assert result.masses.sum().item() == pytest.approx(1, rel=1e-12)
    assert result.lengths.sum().item() == pytest.approx(3.5, rel=1e-12)
    assert (result.nodes.diff() > 0).all()


@pytest.mark.parametrize(
    ("name", "mean"),
    [("flat", 2.25), ("arcsine", 2.25), ("log", 3.5 / math.log(8))],
)
def test_means_are_those_of_the_density(name, mean):
    result = prior(name, (0.5, 4.0), 200)
    assert (result.masses @ result.nodes).item() == pytest.approx(mean, rel=1e-12)


def test_flat_masses_integrate_polynomials_exactly():
    result = prior("flat", (0.0, 1.0), 64)
    for order in range(64):
        power = (result.masses @ result.nodes**order).item()
        assert power == pytest.approx(1 / (order + 1), rel=1e-12)


def test_what_is_no_interval_is_refused():
    with pytest.raises(InputError, match="support: expected low below high"):
        prior("flat", (1.0, 1.0), 10)
    with pytest.raises(InputError, match="support: expected an interval above zero"):
        prior("log", (0.0, 1.0), 10)
