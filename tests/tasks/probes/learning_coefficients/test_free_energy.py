"""Free energies side by side."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from tests.tasks.probes.drawn_nodes import (
    GAMMA,
    HESSIAN,
    NUM_SAMPLES,
    all_eigenvalues,
    bowl,
    runs,
)
from tests.tasks.toys import assert_declared, compute, member

KIND = "probe.free_energy"
LOG, TRAINING = math.log(NUM_SAMPLES), NUM_SAMPLES * 0.3


def measured(draws, ritz, **params):
    (outcome,) = compute(KIND, [member(KIND, params, draws=draws, ritz=ritz)])
    assert_declared(KIND, outcome)
    return outcome.arrays


@pytest.mark.parametrize("precision", [None, 0.5])
def test_laplace_is_the_evidence_of_a_quadratic_loss(precision):
    # Bayes: evidence = prior(w) exp(-n L(w)) / posterior(w), at any w.
    alpha = precision or GAMMA
    w = np.linspace(-0.1, 0.2, len(HESSIAN))
    h = HESSIAN.numpy()
    zero = np.zeros(len(h))
    prior = multivariate_normal(zero, np.eye(len(h)) / alpha).logpdf(w)
    posterior = multivariate_normal(zero, np.diag(1 / (NUM_SAMPLES * h + alpha)))
    loss = TRAINING + NUM_SAMPLES / 2 * w @ (h * w)
    exact = -(prior - loss - posterior.logpdf(w))
    arrays = measured(bowl(), all_eigenvalues(), prior_precision=precision)
    assert arrays["laplace"] == pytest.approx(exact, rel=1e-12)
    assert arrays["laplace_sem"] == 0
    assert arrays["prior_precision"] == alpha


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_runs_of_lanczos_give_it_within_five_standard_errors(seed):
    exact = measured(bowl(), all_eigenvalues())["laplace"]
    assert not measured(bowl(), runs(num_steps=2))["laplace_converged"]
    arrays = measured(bowl(), runs(seed=seed))
    assert abs(arrays["laplace"] - exact) < 5 * arrays["laplace_sem"]


def test_wbic_is_watanabe_s_form_with_the_measured_coefficient():
    arrays = measured(bowl(), all_eigenvalues())
    assert arrays["wbic"] == pytest.approx(float(arrays["watanabe"]), rel=1e-12)
    assert arrays["wbic_sem"] == pytest.approx(float(arrays["watanabe_sem"]), rel=1e-9)
    assert arrays["bic"] == pytest.approx(TRAINING + 4 * LOG, rel=1e-12)


def test_wbic_is_near_the_evidence_with_the_prior_of_the_draws():
    # Of eigenvalues far above and far below the prior's, both terms are nearly equal.
    arrays = measured(bowl(), all_eigenvalues())
    assert arrays["wbic"] == pytest.approx(float(arrays["laplace"]), abs=3)
    assert arrays["bic"] - arrays["wbic"] > 10


def test_at_another_temperature_there_is_no_wbic():
    arrays = measured(bowl(nbeta=20.0), all_eigenvalues())
    assert "wbic" not in arrays
    assert np.isfinite(arrays["watanabe"])


def test_negative_eigenvalues_count_as_zero_and_are_reported():
    values = torch.cat([HESSIAN[:6], torch.tensor([-1e-3, -1.0], dtype=torch.float64)])
    arrays = measured(bowl(), all_eigenvalues(values))
    assert arrays["laplace"] == measured(bowl(), all_eigenvalues())["laplace"]
    assert arrays["negative_mass"] == pytest.approx(2 / 8)
