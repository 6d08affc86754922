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
from curvflow.tasks.numerics.estimators.intervals import (
    interval_of_draws,
    interval_of_squares,
    skewness_of_mean,
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


def test_the_skewness_of_a_mean_is_that_of_the_draws_by_the_root_of_their_number():
    draws = torch.as_tensor(np.random.default_rng(0).exponential(size=(4, 10**5)))
    scaled = skewness_of_mean(draws) * 10**2.5
    assert scaled.tolist() == pytest.approx([2] * 4, abs=0.15)
    np.testing.assert_allclose(skewness_of_mean(-draws), -skewness_of_mean(draws))
    of_two = torch.tensor([[1.0, 3.0], [2.0, 2.0]]).double()
    assert skewness_of_mean(of_two).tolist() == [0, 0]


@pytest.mark.parametrize("count", [8, 16, 40])
def test_intervals_of_random_skewed_draws_hold_their_mean(count):
    shares = {interval_of_draws: [], student_interval: []}
    for seed in range(12):
        rng = np.random.default_rng([seed, count])
        sign, shape = rng.choice([-1, 1]), rng.uniform(0.5, 4)
        draws = torch.as_tensor(sign * rng.gamma(shape, size=(REPETITIONS, count)))
        of, truth = estimate(draws), sign * shape
        for interval, held in shares.items():
            given = (draws,) if interval is interval_of_draws else (of.mean,)
            more = () if interval is interval_of_draws else (of.count - 1,)
            low, high = interval(*given, of.sem, *more)
            held.append(((low <= truth) & (truth <= high)).double().mean().item())
    assert 0.94 < np.mean(shares[interval_of_draws]) < 0.975
    assert np.mean(shares[interval_of_draws]) > np.mean(shares[student_interval])
    assert min(shares[interval_of_draws]) > 0.92


def test_squares_that_are_noisy_or_more_skewed_have_ends_of_both():
    draws = squares(np.array([1.0, 0.2]), 12, 3)
    of = estimate(draws)
    given = (of.mean, of.sem, of.count - 1)
    low, high = interval_of_squares(*given, draws)
    widest = [wider_interval(*given), interval_of_draws(draws, of.sem)]
    assert (low >= 0).all()
    assert (low <= widest[0][0].clamp_min(0)).all()
    for _, end in widest:
        assert (high >= end).all()
