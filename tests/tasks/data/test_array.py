"""The user's own arrays."""

from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from curvflow.errors import InputError
from curvflow.schemas.kinds import find_kind
from tests.tasks.toys import assert_declared, compute, member

X = np.arange(20.0).reshape(10, 2)
Y = np.arange(10) % 3


def checked(files, **params):
    node = replace(
        member("data.array", {"path": "data.npz", **params}), files=dict(files)
    )
    find_kind("data.array").check(node.params, node.files)
    (outcome,) = compute("data.array", [node])
    assert_declared("data.array", outcome)
    return outcome.arrays


def test_named_arrays_become_a_data_set_in_their_order():
    actual = checked({"path": {"x": X, "y": Y}}, inputs="x", targets="y")
    assert np.array_equal(actual["inputs"], X)
    assert np.array_equal(actual["targets"], Y)
    assert actual["num_classes"] == 3
    assert actual["test_inputs"].shape == (0, 2)


def test_test_arrays_are_taken_by_name():
    file = {"inputs": X, "targets": Y, "a": X[:3], "b": Y[:3]}
    actual = checked({"path": file}, test_inputs="a", test_targets="b")
    assert np.array_equal(actual["test_inputs"], X[:3])
    assert np.array_equal(actual["test_targets"], Y[:3])


def test_a_split_holds_out_samples_by_its_seed():
    file = {"path": {"inputs": X, "targets": Y}}
    actual = checked(file, test_fraction=0.3, seed=1)
    assert len(actual["test_inputs"]) == 3
    rows = np.concatenate([actual["inputs"], actual["test_inputs"]])
    assert sorted(rows[:, 0]) == sorted(X[:, 0])
    other = checked(file, test_fraction=0.3, seed=2)
    assert not np.array_equal(actual["inputs"], other["inputs"])


def test_two_npy_files_hold_inputs_and_targets():
    actual = checked(
        {"path": {"array": X}, "targets_path": {"array": X[:, :1]}},
        targets_path="targets.npy",
    )
    assert np.array_equal(actual["targets"], X[:, :1])
    assert actual["num_classes"] == 0


@pytest.mark.parametrize(
    ("files", "params", "message"),
    [
        (
            {"path": {"input": X, "targets": Y}},
            {},
            "inputs: expected an array of the file, got 'inputs'. "
            "Did you mean 'input'?",
        ),
        (
            {"path": {"array": X}},
            {},
            "targets_path: expected a .npy file with a .npy file of inputs, got "
            "none. Give the targets, or put both arrays into one .npz.",
        ),
        (
            {"path": {"array": X}, "targets_path": {"y": Y}},
            {},
            "targets_path: expected a .npy file with a .npy file of inputs, got "
            "an archive. Give the targets, or put both arrays into one .npz.",
        ),
        (
            {"path": {"inputs": X, "targets": Y}, "targets_path": {"array": Y}},
            {},
            "targets_path: a second file cannot be combined with a .npz file. Put "
            "the targets into the .npz, or give the inputs as .npy.",
        ),
        (
            {"path": {"inputs": X, "targets": Y}},
            {"test_fraction": 0.9},
            "test_fraction: expected at least 2 samples left for training, got 1 of "
            "10. Lower it.",
        ),
    ],
)
def test_files_that_are_no_data_set_are_refused_while_planning(files, params, message):
    with pytest.raises(InputError) as caught:
        checked(files, **params)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"test_inputs": "a"}, "expected test_inputs and test_targets together"),
        (
            {"test_inputs": "a", "test_targets": "b", "test_fraction": 0.1},
            "expected test arrays or a test_fraction, got both",
        ),
    ],
)
def test_two_ways_to_a_test_set_are_refused(params, message):
    with pytest.raises(ValidationError, match=message):
        checked({}, **params)
