"""Tests and intervals of means that are known by their standard errors."""

import math

import numpy as np
import pytest
from scipy.stats import norm, t, ttest_ind

from curvflow.tasks.statistics.means import student_half, welch_p


@pytest.mark.parametrize("seed", range(20))
def test_welch_is_that_of_the_values(seed):
    draw = np.random.default_rng(seed)
    first, second = (
        draw.normal(draw.normal(), draw.uniform(0.1, 4), draw.integers(2, 40))
        for _ in range(2)
    )
    errors = tuple(x.std(ddof=1) / len(x) ** 0.5 for x in (first, second))
    found = welch_p(first.mean() - second.mean(), errors, (len(first), len(second)))
    assert found == pytest.approx(ttest_ind(first, second, equal_var=False).pvalue)


def test_errors_that_are_known_are_normal():
    assert welch_p(1.96, (1.0, 0.0), (math.inf, math.inf)) == pytest.approx(
        2 * norm.sf(1.96), rel=1e-6
    )
    one_sample = welch_p(2.0, (1.0, 0.0), (8, math.inf))
    assert one_sample == pytest.approx(2 * t.sf(2.0, 7))


def test_half_of_an_interval_is_students():
    assert student_half(0.5, 10, 0.95) == pytest.approx(0.5 * t.ppf(0.975, 9))
    assert student_half(0.5, math.inf, 0.95) == pytest.approx(0.98, abs=1e-3)
