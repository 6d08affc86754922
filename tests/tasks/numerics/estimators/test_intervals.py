"""Intervals for means of draws: how many hold the truth."""

import numpy as np
import pytest
import torch
from scipy.stats import chi2, t

from curvflow.tasks.numerics import (
    estimate,
    positive_interval,
    student_interval,
    wider_interval,
)

SPECTRA = {
    "one": [1.0],
    "two": [1.0, 1.0],
    "decaying": list(1 / np.arange(1, 40) ** 1.5),
    "far apart": [1.0, *[0.05] * 30],
    "alike": [1.0] * 40,
}
REPETITIONS = 3000


def covered(interval, draws_RS, truth):
    of = estimate(draws_RS)
    low, high = interval(of.mean, of.sem, of.count - 1)
    return ((low <= truth) & (truth <= high)).double().mean().item()


def squares(spectrum, count, seed):
    rng = np.random.default_rng(seed)
    values = np.square(rng.normal(size=(REPETITIONS, count, len(spectrum))))
    return torch.as_tensor(values @ spectrum)


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("count", [4, 8, 16, 64])
def test_sums_of_squares_are_covered_by_few_draws_too(name, count):
    spectrum = np.array(SPECTRA[name])
    draws, truth = squares(spectrum, count, count), spectrum.sum()
    share = covered(positive_interval, draws, truth)
    assert 0.90 <= share <= 0.98
    assert share >= covered(student_interval, draws, truth) - 0.01


def test_few_directions_need_it():
    draws = squares(np.ones(1), 8, 0)
    assert covered(student_interval, draws, 1.0) < 0.88
    assert covered(positive_interval, draws, 1.0) > 0.91


def test_ends_are_those_of_the_law_where_the_error_is_known():
    mean, sem = torch.tensor([2.0, 2.0]).double(), torch.tensor([1.0, 0.1]).double()
    low, high = positive_interval(mean, sem, 10**9)
    for number in range(2):
        nu = 2 * (mean[number] / sem[number]).item() ** 2
        exact = 2.0 * nu / chi2.ppf([0.975, 0.025], nu)
        assert [low[number].item(), high[number].item()] == pytest.approx(exact, 1e-5)


@pytest.mark.parametrize("mean", [-1.0, 0.0, 1e9])
def test_what_is_not_positive_or_hardly_uncertain_has_student_s(mean):
    of = torch.tensor(mean).double(), torch.tensor(0.3).double()
    low, high = positive_interval(*of, 5)
    half = 0.3 * t.ppf(0.975, 5)
    assert [low.item(), high.item()] == pytest.approx([mean - half, mean + half])
    assert [end.item() for end in student_interval(*of, 5)] == [low, high]


def test_an_exact_value_is_its_own_interval():
    of = torch.tensor(3.0).double(), torch.tensor(0.0).double()
    assert [end.item() for end in positive_interval(*of, 3)] == [3.0, 3.0]


def test_hardly_any_degree_of_freedom_leaves_no_upper_end():
    low, high = positive_interval(
        torch.tensor(1.0).double(), torch.tensor(1e3).double(), 1
    )
    assert low.item() >= 0
    assert high.item() > 1e100


@pytest.mark.parametrize("noise", [0.0, 0.3, 3.0, 30.0])
@pytest.mark.parametrize("count", [8, 32])
def test_skewed_draws_are_covered_whatever_noise_is_added(noise, count):
    rng = np.random.default_rng(count)
    added = torch.as_tensor(noise * rng.normal(size=(REPETITIONS, count)))
    draws = squares(np.ones(1), count, 1) + added
    wide = covered(wider_interval, draws, 1.0)
    assert wide > 0.91
    others = [covered(one, draws, 1.0) for one in (positive_interval, student_interval)]
    assert wide >= max(others)
    assert noise < 30 or others[0] < 0.9
