"""Lines and rank correlations."""

import math

import numpy as np
import pytest
from scipy import stats

from curvflow.tasks.statistics.correlations import fit_line, spearman


def pairs(count=25, seed=0, ties=False):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=count)
    y = -x + rng.normal(size=count)
    return (x.round(), y.round()) if ties else (x, y)


@pytest.mark.parametrize("ties", [False, True])
def test_line_and_rank_correlation_agree_with_scipy(ties):
    x, y = pairs(ties=ties)
    known = stats.linregress(x, y)
    assert fit_line(x, y) == pytest.approx((known.slope, known.intercept), rel=1e-12)
    assert spearman(x, y)[0] == pytest.approx(stats.spearmanr(x, y)[0], rel=1e-12)


def test_the_interval_covers_the_true_correlation_as_often_as_it_says():
    # Of a bivariate normal law with correlation r the ranks have 6/pi asin(r/2).
    rng = np.random.default_rng(0)
    true = 6 / math.pi * math.asin(0.7 / 2)
    covered = 0
    for _ in range(400):
        x, y = rng.multivariate_normal([0, 0], [[1, 0.7], [0.7, 1]], size=40).T
        low, high = spearman(x, y)[1]
        covered += low < true < high
    assert abs(covered / 400 - 0.95) < 5 * math.sqrt(0.95 * 0.05 / 400)


def test_the_interval_is_that_of_the_source():
    x, y = pairs(count=28)
    r, (low, high) = spearman(x, y)
    error = math.sqrt((1 + r**2 / 2) / 25)
    assert math.atanh(high) - math.atanh(r) == pytest.approx(1.959964 * error, rel=1e-6)
    assert math.atanh(r) - math.atanh(low) == pytest.approx(1.959964 * error, rel=1e-6)


@pytest.mark.parametrize(
    ("x", "y"), [([], []), ([1.0], [2.0]), ([1.0, 1, 1, 1], [1.0, 2, 3, 4])]
)
def test_what_does_not_differ_has_no_trend(x, y):
    result = fit_line(np.array(x), np.array(y))
    r, interval = spearman(np.array(x), np.array(y))
    assert np.isnan([*result, r, *interval]).all()


@pytest.mark.parametrize("count", [3, 9])
def test_perfect_order_has_no_interval(count):
    x = np.arange(float(count))
    r, interval = spearman(x, -(x**3))
    assert r == pytest.approx(-1)
    assert np.isnan(interval).all()
