"""Quantities of draws and of Ritz data."""

import math

import pytest
import torch

from curvflow.tasks.llc.draws import is_wbic, mass_below, negative_mass
from curvflow.tasks.numerics.krylov.lanczos import RitzData


def ritz(*values):
    """Ritz data of one run with equal weights."""
    values_11K = torch.tensor([[values]], dtype=torch.float64)
    weights_11K = torch.full_like(values_11K, 1 / len(values))
    steps = torch.tensor([[len(values)]])
    return RitzData(values_11K, weights_11K, 0 * values_11K, steps, 90)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_rounding_below_zero_is_no_negative_mass_whatever_the_scale(scale):
    assert negative_mass(ritz(-1e-10 * scale, 0.0, scale, scale)) == 0
    assert negative_mass(ritz(-1e-8 * scale, 0.0, scale, scale)) == 0.25
    assert negative_mass(ritz(-scale, -scale / 2, 0.0, scale / 9)) == 0.5


def test_the_mass_below_a_limit_leaves_out_the_limit():
    assert mass_below(ritz(1.0, 2.0, 2.0, 3.0), 2.0) == 0.25


def test_draws_are_those_of_wbic_at_its_temperature_alone():
    draws = {"num_samples": 50, "nbeta": 50 / math.log(50)}
    assert is_wbic(draws)
    assert not is_wbic({**draws, "nbeta": draws["nbeta"] * (1 + 1e-6)})
    assert not is_wbic({**draws, "num_samples": 51})
