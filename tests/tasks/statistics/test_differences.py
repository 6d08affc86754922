"""Differences of means: against SciPy and closed forms."""

import numpy as np
import pytest
from scipy import special, stats

from curvflow.tasks.statistics.bootstrap import Resampling
from curvflow.tasks.statistics.differences import (
    bootstrap_interval,
    holm,
    paired_difference,
    unpaired_difference,
)

X = np.array([0.3, 1.2, -0.4, 2.1, 0.9, 1.7, 0.2])
Y = np.array([0.1, -0.3, 0.6, 0.8, -1.1])
HOW = Resampling("bca", 2000, 0)


def correction(freedom):
    """Return Hedges' J, by gamma functions as he wrote it."""
    half = freedom / 2
    return special.gamma(half) / (np.sqrt(half) * special.gamma(half - 0.5))


def test_pairs_are_tested_as_scipy_does():
    result = paired_difference(X, 0.9)
    t = stats.ttest_1samp(X, 0)
    assert result.p_t == pytest.approx(t.pvalue, rel=1e-12)
    assert result.limits == pytest.approx(t.confidence_interval(0.9), rel=1e-12)
    assert result.p_rank == stats.wilcoxon(X).pvalue
    assert result.effect == pytest.approx(t.statistic / np.sqrt(7), rel=1e-12)
    assert result.hedges_g == pytest.approx(result.effect * correction(6), rel=1e-12)


def test_signed_ranks_of_positive_differences_have_the_exact_p():
    assert paired_difference(np.arange(1.0, 7), 0.95).p_rank == 2 / 2**6


def test_unpaired_means_are_compared_by_welch():
    result = unpaired_difference(X, Y, 0.95)
    a, b = X.var(ddof=1) / 7, Y.var(ddof=1) / 5
    freedom = (a + b) ** 2 / (a**2 / 6 + b**2 / 4)
    half = stats.t.ppf(0.975, freedom) * np.sqrt(a + b)
    assert result.limits == pytest.approx((result.mean - half, result.mean + half))
    assert result.p_t == pytest.approx(
        2 * stats.t.sf(abs(result.mean) / np.sqrt(a + b), freedom), rel=1e-10
    )
    assert result.p_rank == stats.mannwhitneyu(X, Y).pvalue
    spread = np.sqrt((X.var(ddof=1) + Y.var(ddof=1)) / 2)
    assert result.effect == pytest.approx(result.mean / spread, rel=1e-12)
    variances = X.var(ddof=1), Y.var(ddof=1)
    freedom = sum(variances) ** 2 / (variances[0] ** 2 / 6 + variances[1] ** 2 / 4)
    expected = result.effect * correction(freedom)
    assert result.hedges_g == pytest.approx(expected, rel=1e-12)


def test_a_sample_without_spread_adds_no_degrees_of_freedom_to_the_effect():
    result = unpaired_difference(X, np.zeros(100), 0.95)
    expected = result.effect * correction(len(X) - 1)
    assert result.hedges_g == pytest.approx(expected, rel=1e-12)


def test_differences_that_rounding_alone_distinguishes_have_no_test():
    first, second = np.arange(1, 9) / 10 + 0.1, np.arange(1, 9) / 10
    differences = first - second
    assert np.ptp(differences) > 0
    result = paired_difference(differences, 0.95, largest=first.max())
    assert np.isnan([result.p_t, result.p_rank, result.effect, result.hedges_g]).all()


def test_a_sample_without_spread_is_compared_without_a_warning():
    first, second = np.ones(3), np.array([0.0, 1.0, 0.0, 0.0])
    result = unpaired_difference(first, second, 0.95)
    sem = second.std(ddof=1) / 2
    assert result.p_t == pytest.approx(2 * stats.t.sf(0.75 / sem, 3), rel=1e-12)
    assert result.limits[0] < 0.75 < result.limits[1]


@pytest.mark.parametrize("values", [[], [1.0], [2.0, 2.0, 2.0]])
def test_without_spread_there_is_no_test(values):
    result = paired_difference(np.array(values), 0.95)
    assert np.isnan([result.p_t, result.p_rank, result.effect, result.hedges_g]).all()


def test_the_bootstrap_is_that_of_scipy_and_of_its_seed():
    for kind, method in (("bca", "BCa"), ("percentile", "percentile")):
        how = Resampling(kind, 2000, 3)
        expected = stats.bootstrap(
            (X,),
            np.mean,
            n_resamples=2000,
            method=method,
            random_state=np.random.default_rng(3),
        ).confidence_interval
        assert bootstrap_interval((X,), 0.95, how) == pytest.approx(expected)


def test_the_bootstrap_of_two_samples_is_about_their_difference():
    low, high = bootstrap_interval((X, Y), 0.95, HOW)
    assert low < X.mean() - Y.mean() < high
    assert bootstrap_interval((X, np.zeros(0)), 0.95, HOW) != (low, high)


def test_without_spread_the_bootstrap_is_the_mean():
    assert bootstrap_interval((np.full(4, 2.5),), 0.95, HOW) == (2.5, 2.5)


@pytest.mark.parametrize("method", ["bca", "percentile"])
def test_the_bootstrap_has_limits_from_two_values_on(method):
    how = Resampling(method, 200, 0)
    assert np.isnan(bootstrap_interval((X[:1],), 0.95, how)).all()
    low, high = bootstrap_interval((X[:2],), 0.95, how)
    assert X[:2].min() <= low < high <= X[:2].max()


@pytest.mark.parametrize("paired", [True, False])
def test_intervals_hold_the_truth_as_often_as_they_say(paired):
    random, inside, runs = np.random.default_rng(5), 0, 2000
    for _ in range(runs):
        first, second = random.normal(1, 2, 8), random.normal(0, 0.5, 8)
        result = (
            paired_difference(first - second, 0.9)
            if paired
            else unpaired_difference(first, second, 0.9)
        )
        inside += result.limits[0] <= 1 <= result.limits[1]
    assert abs(inside / runs - 0.9) < 4 * np.sqrt(0.9 * 0.1 / runs)


def test_the_bootstrap_holds_the_truth_nearly_as_often_as_it_says():
    random, inside, runs = np.random.default_rng(6), 0, 300
    for seed in range(runs):
        how = Resampling("bca", 500, seed)
        low, high = bootstrap_interval((random.exponential(1, 40),), 0.9, how)
        inside += low <= 1 <= high
    # Few values of a skewed law: somewhat less than asked for, but never far.
    assert 0.82 < inside / runs < 0.95


def test_holm_steps_down_and_leaves_what_is_no_test():
    p = np.array([0.01, np.nan, 0.04, 0.03, 0.005])
    expected = [0.03, np.nan, 0.06, 0.06, 0.02]
    np.testing.assert_allclose(holm(p), expected, rtol=1e-12)
    np.testing.assert_allclose(holm(np.array([0.6, 0.9])), [1.0, 1.0])


def test_holm_keeps_the_family_wise_error():
    random, wrong, runs = np.random.default_rng(7), 0, 4000
    for _ in range(runs):
        wrong += bool((holm(random.uniform(size=6)) < 0.1).any())
    assert wrong / runs < 0.1 + 4 * np.sqrt(0.1 * 0.9 / runs)
    assert wrong / runs > 0.1 - 0.03  # for independent tests it is nearly used up
