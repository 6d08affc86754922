"""Tests and intervals of means that are known by their standard errors."""

import math

import numpy as np
import pytest
from scipy.stats import norm, t, ttest_ind

from curvflow.tasks.statistics.means import cautious_p, freedom_of, student, welch_p


@pytest.mark.parametrize("seed", range(20))
def test_welch_is_that_of_the_values(seed):
    draw = np.random.default_rng(seed)
    first, second = (
        draw.normal(draw.normal(), draw.uniform(0.1, 4), draw.integers(2, 40))
        for _ in range(2)
    )
    errors = tuple(x.std(ddof=1) / len(x) ** 0.5 for x in (first, second))
    found = welch_p(
        first.mean() - second.mean(), errors, (len(first) - 1, len(second) - 1)
    )
    assert found == pytest.approx(ttest_ind(first, second, equal_var=False).pvalue)


@pytest.mark.parametrize("sizes", [(2, 2), (2, 10), (3, 40), (6, 3)])
def test_the_cautious_test_is_never_below_its_level_too_often(sizes):
    draw = np.random.default_rng(sizes)
    for ratio in (0.1, 1.0, 3.0, 10.0):
        below = 0
        for _ in range(1500):
            first, second = (draw.normal(size=n) for n in sizes)
            first *= ratio
            errors = tuple(x.std(ddof=1) / len(x) ** 0.5 for x in (first, second))
            case = first.mean() - second.mean(), errors, tuple(n - 1 for n in sizes)
            found = cautious_p(*case)
            assert found >= welch_p(*case) * (1 - 1e-9)
            below += found < 0.05
        assert below / 1500 < 0.05 + 0.023  # four standard errors


def test_students_interval_is_that_of_the_law():
    for freedom in (1, 2, 9.5, 1e6):
        assert student(freedom, 0.9) == pytest.approx(t.ppf(0.95, freedom))
    assert student(math.inf) == pytest.approx(norm.ppf(0.975), rel=1e-6)


def test_errors_that_are_known_are_normal():
    assert welch_p(1.96, (1.0, 0.0), (math.inf, math.inf)) == pytest.approx(
        2 * norm.sf(1.96), rel=1e-6
    )
    one_sample = welch_p(2.0, (1.0, 0.0), (7, math.inf))
    assert one_sample == pytest.approx(2 * t.sf(2.0, 7))


def test_errors_that_are_tiny_or_of_other_sizes_are_compared():
    assert welch_p(1.0, (1e-200, 0.0), (9, math.inf)) == 0
    assert welch_p(0.0, (1e-200, 0.0), (9, math.inf)) == pytest.approx(1)


@pytest.mark.parametrize("freedom", [1, 3.5, 9, 200])
def test_an_interval_tells_the_freedom_of_its_error(freedom):
    half = 0.5 * t.ppf(0.975, freedom)
    assert freedom_of(half, 0.5) == pytest.approx(freedom, rel=1e-3)


def test_an_interval_that_is_normal_or_unknown_has_no_end_of_freedom():
    assert freedom_of(norm.ppf(0.975), 1.0) > 1e5
    for half, error in ((math.nan, 1.0), (1.0, math.nan), (1.0, 0.0), (0.5, 1.0)):
        assert freedom_of(half, error) == math.inf
