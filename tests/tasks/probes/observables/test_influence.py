"""Influence functions of linear regressions, against responses of their posteriors."""

import numpy as np
import pytest

from benchmarks.observables import ESTIMATES, LinearGaussian
from tests.tasks.probes.observables.gaussians import (
    MODELS,
    assert_near,
    computed,
    drawn,
)
from tests.tasks.toys import assert_declared, compute

KIND = "probe.influence"


@pytest.mark.parametrize("number", range(3))
def test_influence_is_the_closed_form_of_the_gaussian(number):
    model = MODELS[number]
    outcome = computed(KIND, drawn(model), samples={"subsets": model.groups})
    assert_declared(KIND, outcome)
    assert_near(outcome.arrays, "influence", model.known()[KIND])
    assert outcome.arrays["query"][0] == "test sample 0"


def test_the_closed_form_is_the_response_to_a_samples_inverse_temperature():
    model, step = MODELS[1], 1e-4
    change = np.zeros(len(model.inputs))
    change[4] = step / model.nbeta  # of its inverse temperature, nbeta / n, a step
    low, high = (model.moments(model.weighting + each)[0] for each in (-change, change))
    _, covariance = model.moments(model.weighting)
    assert (high - low) / (2 * step) == pytest.approx(-covariance[4], rel=1e-6)


@pytest.mark.parametrize("number", [6, 9])
def test_estimates_by_chains_of_biases_alone_are_those_of_their_posterior(number):
    model = LinearGaussian.drawn(number)
    assert model.part == "biases"
    precision = 2 * model.factor * model.nbeta + model.localization
    probe = model.probe(
        calibrate="none",
        sampling_method="mala",
        lr=1 / precision,
        num_burnin_steps=20,
        num_draws=600,
        num_steps_bw_draws=2,
    )
    (outcome,) = compute("probe.llc", [probe])
    assert_declared("probe.llc", outcome)
    arrays = model.measured(outcome)
    for kind, name in ESTIMATES.items():
        assert_near(arrays[kind], name, model.known()[kind])
