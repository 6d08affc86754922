"""Susceptibilities of linear regressions, against responses of their posteriors."""

import numpy as np
import pytest

from tests.tasks.probes.observables.gaussians import (
    MODELS,
    assert_near,
    computed,
    drawn,
    response,
)
from tests.tasks.toys import assert_declared

KIND = "probe.susceptibility"
TESTS = {"split": "test", "by": "all"}


@pytest.mark.parametrize("number", range(3))
def test_it_is_the_response_of_the_gaussian_to_a_shift_of_the_data(number):
    model = MODELS[number]
    outcome = computed(
        KIND, drawn(model), shifts={"subsets": model.groups}, observables=TESTS
    )
    assert_declared(KIND, outcome)
    train, tests = (
        [*range(model.num_train)],
        [*range(model.num_train, len(model.inputs))],
    )
    truth = response(model, [*model.groups.values()], [train, tests])
    assert model.known()[KIND] == pytest.approx(truth, rel=1e-4)
    assert_near(outcome.arrays, "susceptibility", truth)
    assert outcome.arrays["observable"].tolist() == ["loss", "test"]
    assert outcome.arrays["shift"].tolist() == [*model.groups]


def test_a_shift_to_all_the_data_changes_nothing():
    arrays = computed(KIND, drawn(MODELS[0], draws=400), shifts={"by": "all"}).arrays
    assert arrays["susceptibility"] == pytest.approx(0.0, abs=1e-12)
    assert arrays["susceptibility_sem"] == pytest.approx(0.0, abs=1e-12)


def test_responses_to_equal_groups_that_are_all_the_data_add_up_to_none():
    model = MODELS[0]
    count = model.num_train // 2
    halves = {"even": [*range(count)], "odd": [*range(count, 2 * count)]}
    draws = drawn(model, draws=400)
    if 2 * count < model.num_train:
        draws.arrays["loss_trace"] = draws["observed_losses"][..., : 2 * count].mean(-1)
    arrays = computed(KIND, draws, shifts={"subsets": halves}).arrays
    assert arrays["susceptibility"].sum() == pytest.approx(0.0, abs=1e-10)
    assert np.abs(arrays["susceptibility"]).min() > 1e-6
