"""The digits."""

import numpy as np
import pytest
from pydantic import ValidationError

from tests.tasks.toys import assert_declared, compute, member


def digits(**params):
    (outcome,) = compute("data.digits", [member("data.digits", params)])
    return outcome


def test_all_digits_are_there_once_and_scaled():
    outcome = digits()
    assert_declared("data.digits", outcome)
    arrays = outcome.arrays
    assert arrays["inputs"].shape == (1438, 64)
    assert arrays["test_inputs"].shape == (359, 64)
    assert arrays["num_classes"] == 10
    whole = np.concatenate([arrays["inputs"], arrays["test_inputs"]])
    assert whole.min() == 0
    assert whole.max() == 1
    labels = np.concatenate([arrays["targets"], arrays["test_targets"]])
    assert np.bincount(labels.astype(int)).tolist() == [
        178, 182, 177, 183, 181, 182, 181, 179, 174, 180
    ]  # fmt: skip


def test_the_split_follows_its_seed():
    first, again, other = (digits(seed=s).arrays["targets"] for s in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first[:8].tolist() == GOLDEN


GOLDEN = [1.0, 8.0, 8.0, 1.0, 0.0, 1.0, 8.0, 0.0]


def test_fewer_training_samples_leave_the_test_set_alone():
    few, all_of_them = digits(num_train=100).arrays, digits().arrays
    assert np.array_equal(few["inputs"], all_of_them["inputs"][:100])
    assert np.array_equal(few["test_inputs"], all_of_them["test_inputs"])


def test_without_a_test_fraction_there_is_no_test_set():
    arrays = digits(test_fraction=0.0).arrays
    assert len(arrays["inputs"]) == 1797
    assert arrays["test_inputs"].shape == (0, 64)


def test_more_samples_than_there_are_are_refused():
    with pytest.raises(ValidationError, match=r"at most the 1438 samples .* got 1439"):
        digits(num_train=1439)
