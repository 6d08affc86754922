"""Agreement of independent estimates within their errors."""

import numpy as np
import pytest
from scipy import stats

from curvflow.tasks.probes.crosscheck import Route, agreement


def compared(*routes, confidence=0.999, rounding=0.0):
    return agreement(routes, confidence=confidence, rounding=rounding)


def test_known_errors_give_normal_deviates():
    result = compared(Route("a", 10.0, 0.3), Route("b", 11.0, 0.4))
    assert result.z[1, 0] == pytest.approx(2, rel=1e-6)
    assert result.z[0, 1] == -result.z[1, 0]
    assert np.isnan(result.z[0, 0])
    assert result.consistent
    assert result.limit == pytest.approx(stats.norm.isf(0.0005), rel=1e-9)
    assert result.resolution[0, 1] == pytest.approx(result.limit * 0.5 / 11, rel=1e-5)


def test_errors_of_few_draws_have_the_tails_of_welch():
    a, b = Route("a", 0.0, 0.3, 5), Route("b", 1.0, 0.4, 9)
    freedom = 0.25**2 / (0.09**2 / 4 + 0.16**2 / 8)
    expected = stats.norm.isf(stats.t.sf(2.0, freedom))
    assert compared(a, b).z[1, 0] == pytest.approx(expected, rel=1e-6)


def test_a_planted_factor_of_two_is_seen():
    right = [Route("probes", 10.1, 0.4, 50), Route("density", 9.8, 0.3, 20)]
    assert compared(*right, Route("dense", 10.0), rounding=1e-6).consistent
    wrong = compared(*right, Route("dense", 20.0), rounding=1e-6)
    assert not wrong.consistent
    assert (np.abs(wrong.z[2, :2]) > wrong.limit).all()


def test_exact_routes_agree_up_to_rounding_alone():
    close = [Route("a", 1.0), Route("b", 1 + 1e-8)]
    assert compared(*close, rounding=1e-6).consistent
    assert not compared(*close).consistent
    assert compared(Route("a", 0.0), Route("b", 0.0)).consistent


@pytest.mark.parametrize("bad", [Route("c", np.nan, 0.1), Route("c", 1.0, np.nan)])
def test_what_is_not_known_is_not_consistent(bad):
    result = compared(Route("a", 1.0, 0.1), Route("b", 1.0, 0.1), bad)
    assert not result.consistent
    assert result.judged.sum() == 2


def test_sound_routes_are_consistent_as_often_as_asked():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(1500, 3, 8))
    means, sems = draws.mean(2), draws.std(2, ddof=1) / 8**0.5
    ok = [
        compared(
            *(
                Route(str(r), m, s, 8)
                for r, (m, s) in enumerate(zip(*row, strict=True))
            ),
            confidence=0.9,
        ).consistent
        for row in zip(means, sems, strict=True)
    ]
    assert 0.88 <= np.mean(ok) <= 0.97
