"""Errors of a noise scale are those over data drawn from a population."""

import numpy as np
import pytest
import torch

from curvflow.tasks.monitor.noise import (
    Groups,
    Pairs,
    Spread,
    numbers_of,
    squared_covariance,
)

SCALES_D = torch.arange(1, 13, dtype=torch.float64) ** -0.5
NAMES = ("gradient_variance", "gradient_squared_norm", "noise_scale")


def numbers(slopes_ND, num_parts, population):
    """Return the numbers of given gradients of samples in parts."""
    spread = Spread(torch.zeros_like(slopes_ND[0]))
    groups = Groups(slopes_ND[0], num_parts)
    for part_ND in torch.tensor_split(slopes_ND, num_parts):
        spread.add(part_ND.mean(0), len(part_ND))
        groups.add(part_ND.mean(0), len(part_ND))
    rest = 1 / len(slopes_ND) - 1 / population
    variance = spread.squares / (num_parts - 1)
    return numbers_of(spread, variance, rest, groups.errors(spread.mean, rest))


def covered(draw, truths, num_parts, population, repetitions=200):
    """Return how often two standard errors hold the truth, and errors by deviations."""
    found = [numbers(draw(), num_parts, population) for _ in range(repetitions)]
    shares, ratios = [], []
    for name, truth in zip(NAMES, truths, strict=True):
        values = np.array([each[name] for each in found])
        errors = np.array([each[f"{name}_sem"] for each in found])
        shares.append(np.mean(np.abs(values - truth) <= 2 * errors))
        ratios.append(np.sqrt(np.mean(errors**2)) / values.std(ddof=1))
    return np.array(shares), np.array(ratios)


@pytest.mark.parametrize(("num_parts", "count"), [(16, 64), (48, 48), (13, 60)])
@pytest.mark.parametrize("mean", [0.15, 0.5])
def test_two_standard_errors_hold_the_truth_of_a_large_population(
    num_parts, count, mean
):
    draw = torch.Generator().manual_seed(0)
    variance, squared = float(SCALES_D.square().sum()), len(SCALES_D) * mean**2

    def sample():
        normal_ND = torch.randn(count, 12, generator=draw, dtype=torch.float64)
        return mean + SCALES_D * normal_ND

    truths = variance, squared, variance / squared
    shares, ratios = covered(sample, truths, num_parts, 10**9)
    # The error of a ratio to first order is not that of a gradient lost in noise.
    known = slice(None) if mean > 0.2 else slice(2)
    assert (shares[known] >= 0.89).all()
    assert (ratios[known] > 0.85).all()
    assert (ratios[known] < 1.2).all()


def test_data_that_are_most_of_the_population_leave_little_error():
    draw = torch.Generator().manual_seed(1)
    normal_ND = torch.randn(80, 12, generator=draw, dtype=torch.float64)
    all_ND = 0.5 + SCALES_D * normal_ND
    variance = float(all_ND.var(0).sum())
    squared = float(all_ND.mean(0).square().sum())

    def sample():
        return all_ND[torch.randperm(80, generator=draw)[:64]]

    truths = variance, squared, variance / squared
    shares, ratios = covered(sample, truths, 16, 80)
    assert (shares >= 0.89).all()
    assert (ratios > 0.85).all()
    assert (ratios < 1.2).all()


def test_single_samples_of_a_large_population_are_not_exact():
    draw = torch.Generator().manual_seed(0)
    slopes_ND = 0.3 + torch.randn(64, 12, generator=draw, dtype=torch.float64)
    found = numbers(slopes_ND, 64, 10**9)
    # Closed forms of unit variances: 4 g.C g / n + 2 tr(C^2) / n^2, and 2 tr(C^2) / n.
    expected = np.sqrt(4 * 12 * 0.09 / 64 + 24 / 64**2)
    assert found["gradient_squared_norm_sem"] == pytest.approx(expected, rel=0.3)
    expected = np.sqrt(24 / 64)
    assert found["gradient_variance_sem"] == pytest.approx(expected, rel=0.3)


def test_equal_gradients_have_no_error_and_few_parts_an_unknown_one():
    equal = numbers(torch.ones(64, 12, dtype=torch.float64), 16, 10**9)
    assert all(equal[f"{name}_sem"] == 0 for name in NAMES)
    draw = torch.Generator().manual_seed(0)
    slopes_ND = 0.3 + torch.randn(64, 12, generator=draw, dtype=torch.float64)
    few = numbers(slopes_ND, 3, 10**9)
    assert np.isfinite([few[name] for name in NAMES]).all()
    assert all(np.isnan(few[f"{name}_sem"]) for name in NAMES)
    one = Pairs()
    for part_ND in slopes_ND.split(32):
        one.add(part_ND.mean(0), 32)
    assert np.isnan(one.error(2))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_trace_of_a_squared_covariance_is_unbiased_whatever_the_mean(seed):
    draw = np.random.default_rng(seed)
    draws_RGD = 2 + draw.exponential(size=(2000, 5, 3)) * [1.0, 0.7, 0.5]
    inner_RGG = draws_RGD @ draws_RGD.transpose(0, 2, 1)
    values = np.array([squared_covariance(inner_GG) for inner_GG in inner_RGG])
    sem = values.std() / np.sqrt(len(values))
    truth = 1 + 0.7**4 + 0.5**4
    assert abs(values.mean() - truth) < 5 * sem
