"""WBIC from draws."""

import math

import numpy as np
import pytest

from curvflow.errors import InputError
from tests.tasks.probes.drawn_nodes import GAMMA, HESSIAN, NUM_SAMPLES, WBIC, bowl
from tests.tasks.toys import assert_declared, compute, member

KIND = "probe.wbic"
LOG = math.log(NUM_SAMPLES)


def measured(draws):
    (outcome,) = compute(KIND, [member(KIND, draws=draws)])
    assert_declared(KIND, outcome)
    return outcome.arrays


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_is_within_five_standard_errors_of_the_integral(seed):
    heat = WBIC * HESSIAN
    exact = NUM_SAMPLES * 0.3 + LOG / 2 * float((heat / (heat + GAMMA)).sum())
    arrays = measured(bowl(seed))
    assert abs(arrays["wbic"] - exact) < 5 * arrays["wbic_sem"]
    assert 0 < arrays["wbic_sem"] < 0.02 * exact


def test_the_penalty_is_the_learning_coefficient_times_the_log():
    draws = bowl()
    arrays = measured(draws)
    assert arrays["penalty"] / LOG == pytest.approx(float(draws["llc_mean"]), rel=1e-12)
    assert arrays["wbic_sem"] / LOG == pytest.approx(float(draws["llc_sem"]), rel=1e-12)
    assert arrays["wbic_per_chain"].mean() == pytest.approx(float(arrays["wbic"]))


def test_it_says_what_it_was_made_at():
    arrays = measured(bowl(gamma=7.0))
    assert (arrays["nbeta"], arrays["localization"]) == (WBIC, 7.0)


def test_failed_chains_are_left_out_and_the_verdict_stays():
    arrays = measured(bowl(failed=(1,)))
    assert np.isnan(arrays["wbic_per_chain"]).tolist() == [False, True, False, False]
    assert arrays["wbic"] == pytest.approx(np.nanmean(arrays["wbic_per_chain"]))
    assert arrays["verdict"] == "failed"


def test_without_a_chain_left_there_is_none():
    arrays = measured(bowl(failed=(0, 1, 2, 3)))
    assert np.isnan([arrays["wbic"], arrays["wbic_sem"], arrays["penalty"]]).all()


def test_draws_of_another_temperature_are_refused():
    with pytest.raises(InputError, match=r"expected nbeta n / ln n, 80\.4556 of 500"):
        measured(bowl(nbeta=20.0))
