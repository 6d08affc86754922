import numpy as np
import pytest
from scipy import stats

from curvflow.tasks.statistics.descriptive import statistics

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("n", [2, 3, 10, 50])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_the_interval_is_that_of_student(n, confidence):
    values = RNG.normal(3, 2, n)
    got = statistics(values)
    expected = stats.t.interval(
        confidence, n - 1, loc=values.mean(), scale=stats.sem(values)
    )
    np.testing.assert_allclose(got.interval(confidence), expected, rtol=1e-12)


def test_mean_spread_and_extremes_are_those_of_numpy_for_every_column():
    values = RNG.normal(size=(7, 4, 3)) * 1e6
    got = statistics(values)
    np.testing.assert_allclose(got.mean, values.mean(0), rtol=1e-12)
    np.testing.assert_allclose(got.sd, values.std(0, ddof=1), rtol=1e-12)
    np.testing.assert_allclose(got.sem, stats.sem(values, 0), rtol=1e-12)
    np.testing.assert_array_equal(got.least, values.min(0))
    np.testing.assert_array_equal(got.greatest, values.max(0))
    assert (got.count == 7).all()


def test_a_large_offset_costs_no_digits_of_the_spread():
    got = statistics(np.array([1e9 + 1, 1e9 + 2, 1e9 + 3]))
    assert (float(got.mean), float(got.sd)) == (1e9 + 2, 1.0)


def test_equal_values_have_exactly_no_spread():
    got = statistics(np.full(3, 0.1))
    low, high = got.interval()
    assert float(got.mean) == float(low) == float(high) == 0.1
    assert float(got.sd) == float(got.sem) == 0.0


def test_error_bars_end_where_their_name_says():
    got = statistics(np.array([[1.0, 5.0], [2.0, np.nan], [6.0, np.nan]]))
    sd = 7.0**0.5
    for spread, low, high in (
        ("range", 1.0, 6.0),
        ("sd", 3 - sd, 3 + sd),
        ("sem", 3 - sd / 3**0.5, 3 + sd / 3**0.5),
        ("ci95", *(float(end[0]) for end in got.interval(0.95))),
        ("none", np.nan, np.nan),
    ):
        ends = np.array(got.ends(spread))
        np.testing.assert_allclose(ends[:, 0], [low, high], rtol=1e-12)
        assert np.isnan(ends[:, 1]).all()  # of a single value there is no spread


def test_one_value_has_a_mean_but_neither_spread_nor_interval():
    got = statistics(np.array([4.0]))
    assert (int(got.count), float(got.mean)) == (1, 4.0)
    assert np.isnan([got.sd, got.sem, *got.interval()]).all()


@pytest.mark.parametrize("values", [np.empty((0, 2)), np.full((3, 2), np.nan)])
def test_without_a_value_everything_is_nan(values):
    got = statistics(values)
    assert got.count.tolist() == [0, 0]
    result = [got.mean, got.sd, got.sem, got.least, got.greatest, *got.interval()]
    assert np.isnan(result).all()


def test_values_that_are_not_finite_are_left_out():
    got = statistics(np.array([[1.0, np.nan], [np.inf, 5.0], [3.0, -np.inf]]))
    assert got.count.tolist() == [2, 1]
    assert got.mean.tolist() == [2.0, 5.0]
    assert got.greatest.tolist() == [3.0, 5.0]


def test_the_order_of_the_rows_changes_no_bit():
    values = RNG.lognormal(sigma=5, size=(40, 3))
    got = [statistics(RNG.permutation(values)) for _ in range(5)]
    assert (
        len({summary_of.mean.tobytes() + summary_of.sd.tobytes() for summary_of in got})
        == 1
    )


def test_a_spread_beyond_the_range_of_doubles_is_infinite_and_not_an_error():
    got = statistics(np.array([1e200, 2e200, 3e200]))
    assert float(got.mean) == pytest.approx(2e200)
    assert float(got.sd) == np.inf
