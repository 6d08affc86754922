"""The part of a learning coefficient that a Hessian explains."""

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from tests.tasks.probes.drawn_nodes import (
    GAMMA,
    HESSIAN,
    WBIC,
    all_eigenvalues,
    bowl,
    runs,
)
from tests.tasks.toys import assert_declared, compute, member

KIND = "probe.llc_regular"
EXACT = float((HESSIAN / (HESSIAN + GAMMA / WBIC)).sum()) / 2


def compared(draws, ritz):
    (outcome,) = compute(KIND, [member(KIND, draws=draws, ritz=ritz)])
    assert_declared(KIND, outcome)
    return outcome.arrays


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_of_a_quadratic_loss_it_explains_all(seed):
    arrays = compared(bowl(seed), all_eigenvalues())
    assert arrays["llc_regular"] == pytest.approx(EXACT, rel=1e-12)
    assert arrays["llc_regular_sem"] == 0
    assert arrays["llc_singular_sem"] == arrays["llc_sem"]
    assert abs(arrays["z"]) < 5


def test_what_is_not_quadratic_is_left_over():
    arrays = compared(bowl(excess=0.7), all_eigenvalues())
    assert abs(arrays["llc_singular"] - 0.7) < 5 * arrays["llc_singular_sem"]
    assert arrays["z"] > 5


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_runs_of_lanczos_give_it_within_five_standard_errors(seed):
    arrays = compared(bowl(seed), runs(seed=seed))
    assert abs(arrays["llc_regular"] - EXACT) < 5 * arrays["llc_regular_sem"]
    both = np.hypot(arrays["llc_sem"], arrays["llc_regular_sem"])
    assert arrays["llc_singular_sem"] == pytest.approx(both)


def test_one_run_tells_the_error():
    arrays = compared(bowl(), runs(num_runs=1))
    assert abs(arrays["llc_regular"] - EXACT) < 4 * arrays["llc_regular_sem"]
    assert arrays["llc_regular_low"] < EXACT < arrays["llc_regular_high"]


def test_negative_eigenvalues_count_as_zero_and_are_reported():
    values = torch.cat([HESSIAN[:6], torch.tensor([-1e-3, -1.0], dtype=torch.float64)])
    arrays = compared(bowl(), all_eigenvalues(values))
    assert arrays["llc_regular"] == pytest.approx(EXACT, rel=1e-12)
    assert arrays["negative_mass"] == pytest.approx(2 / 8)
    assert arrays["unheld_mass"] == pytest.approx(1 / 8)


def test_draws_held_by_nothing_are_refused():
    with pytest.raises(InputError, match="expected a localization above 0 in 'llc'"):
        compared(bowl(gamma=0.0), all_eigenvalues())


def test_a_hessian_of_other_parameters_is_refused():
    ritz = all_eigenvalues()
    ritz.arrays["size"] = np.array(7)
    with pytest.raises(InputError, match="Hessian of the 8 parameters that moved in"):
        compared(bowl(), ritz)


def test_steps_that_do_not_resolve_the_hessian_are_in_its_error():
    arrays = compared(bowl(), runs(num_steps=2))
    assert arrays["llc_regular_quadrature"] > 0
    assert arrays["llc_regular_sem"] > arrays["llc_regular_vectors"]
    assert arrays["llc_regular_low"] < EXACT < arrays["llc_regular_high"]
    assert arrays["steps_needed"] > 2
    assert not arrays["regular_converged"]
    assert compared(bowl(), runs())["regular_converged"]
