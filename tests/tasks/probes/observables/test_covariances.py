"""Covariances of losses over posteriors of known moments."""

import numpy as np
import pytest

from curvflow.errors import InputError
from tests.tasks.probes.observables.gaussians import (
    MODELS,
    assert_near,
    computed,
    drawn,
)
from tests.tasks.toys import assert_declared

KIND = "probe.covariances"


@pytest.mark.parametrize("number", range(3))
def test_covariances_of_groups_are_those_of_the_gaussian(number):
    model = MODELS[number]
    outcome = computed(KIND, drawn(model), rows={"subsets": model.groups})
    assert_declared(KIND, outcome)
    assert_near(outcome.arrays, "covariance", model.known()[KIND])
    assert outcome.arrays["row"].tolist() == [*model.groups]


def test_covariances_of_samples_are_those_of_the_draws():
    model = MODELS[1]
    draws = drawn(model, draws=200)
    queries = {"split": "test", "by": "sample"}
    arrays = computed(KIND, draws, rows={"by": "kept"}, columns=queries).arrays
    count = model.num_train
    expected = np.cov(draws["observed_losses"].reshape(-1, count + 6).T)
    assert arrays["covariance"] == pytest.approx(expected[:count, count:], rel=1e-9)
    assert arrays["row"][3] == "train sample 3"
    assert arrays["column"][5] == "test sample 5"


def test_a_chain_that_failed_is_left_out_and_shows():
    model, groups = MODELS[0], {"subsets": MODELS[0].groups}
    whole = drawn(model)
    arrays = computed(KIND, drawn(model, failed=[1], verdict="failed"), rows=groups)
    left = {name: whole[name][[0, 2, 3]] for name in ("observed_losses", "loss_trace")}
    left["failed_at"] = np.full(3, -1)
    expected = computed(KIND, replaced(whole, left), rows=groups).arrays
    assert np.array_equal(arrays.arrays["covariance"], expected["covariance"])
    assert not arrays.arrays["converged"].any()
    assert arrays.arrays["verdict"] == "failed"
    assert "the chains are failed: as it is" in str(arrays.arrays["reason"])


def replaced(draws, arrays):
    return type(draws)("llc", "probe.llc", {}, {**draws.arrays, **arrays}, "other")


def test_a_localization_that_takes_much_does_not_count_against_averages():
    arrays = computed(KIND, drawn(MODELS[0], verdict="held"), rows={"by": "all"}).arrays
    assert arrays["verdict"] == "converged"


def test_few_draws_are_called_drifting_with_what_to_do():
    draws = drawn(MODELS[0], draws=60)
    arrays = computed(KIND, draws, rows={"subsets": MODELS[0].groups}).arrays
    assert arrays["verdict"] == "drifting"
    assert arrays["num_unconverged"] > 0
    assert str(arrays["reason"]).endswith("Raise num_draws of 'llc'.")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"by": "label"}, r"rows\.by: expected losses with a label in 'llc', got none"),
        ({"by": "token"}, r"rows\.by: expected losses with a token in 'llc', got none"),
        ({"subsets": {"far": [99]}}, r"rows\.subsets: .* got 99\. Lower it"),
    ],
)
def test_groups_that_are_not_there_are_refused(rows, message):
    with pytest.raises(InputError, match=message):
        computed(KIND, drawn(MODELS[0], draws=8), rows=rows)
