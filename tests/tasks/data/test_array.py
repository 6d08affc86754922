"""The user's own arrays."""

from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from curvflow.errors import InputError
from curvflow.schemas.kinds import find_kind
from curvflow.tasks.datasets.images import shuffled
from curvflow.tasks.datasets.splits import parts_by_group
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


WHO = np.array(["a", "b", "b", "c", "a", "d", "d", "d", "b", "e"])


@pytest.mark.parametrize("seed", range(4))
def test_a_group_is_in_one_part(seed):
    file = {"path": {"inputs": X, "targets": Y, "who": WHO}}
    actual = checked(file, test_fraction=0.3, group="who", seed=seed, num_classes=3)
    test = WHO[(actual["test_inputs"][:, 0] / 2).astype(int)]
    train = WHO[(actual["inputs"][:, 0] / 2).astype(int)]
    assert set(train).isdisjoint(test)
    assert len(train) + len(test) == 10
    assert abs(len(test) - 3) <= 3 / 2  # half of the largest group
    assert len(test)


def test_groups_are_drawn_by_the_seed():
    file = {"path": {"inputs": X, "targets": Y, "who": np.arange(10)}}
    drawn = [
        checked(file, test_fraction=0.3, group="who", seed=seed, num_classes=3)
        for seed in (0, 0, 1)
    ]
    first, again, other = (set(one["test_inputs"][:, 0]) for one in drawn)
    assert first == again != other


@pytest.mark.parametrize("as_dates", [False, True])
def test_the_latest_samples_are_held_out_whatever_the_seed(as_dates):
    time = np.array([3, 9, 1, 4, 7, 7, 2, 0, 5, 6])
    file = {"path": {"inputs": X, "targets": Y, "day": time}}
    if as_dates:
        file["path"]["day"] = np.datetime64("2024-01-01") + time
    for seed in (0, 1):
        actual = checked(file, test_fraction=0.2, time="day", seed=seed, num_classes=3)
        # 7 stands twice, and both are held out.
        assert actual["test_inputs"][:, 0].tolist() == [8, 10, 2]
        assert actual["inputs"][:, 0].tolist() == [14, 4, 12, 0, 6, 16, 18]


@pytest.mark.parametrize(
    ("more", "params", "message"),
    [
        ({}, {"group": "who"}, "group: expected an array of the file, got 'who'"),
        (
            {"who": WHO[:4]},
            {"group": "who"},
            "group: expected one entry for each of the 10 samples, got an array of "
            "shape (4,)",
        ),
        ({"who": WHO}, {"time": "who"}, "time: expected numbers or dates, got dtype"),
        (
            {"who": np.where(Y == 0, np.nan, Y)},
            {"time": "who"},
            "time: expected an entry everywhere, got 4 missing",
        ),
        ({"who": Y * 0}, {"group": "who"}, "expected at least 2 groups to split"),
        ({"who": Y * 0}, {"time": "who"}, "expected at least 2 samples left"),
    ],
)
def test_a_split_that_cannot_be_is_refused(more, params, message):
    file = {"path": {"inputs": X, "targets": Y, **more}}
    with pytest.raises(InputError) as caught:
        checked(file, test_fraction=0.3, **params)
    assert message in str(caught.value)


@pytest.mark.parametrize("by", ["group", "time"])
def test_a_share_that_holds_out_nothing_is_refused(by):
    file = {"path": {"inputs": X, "targets": Y, "who": np.arange(len(X)) // 2}}
    with pytest.raises(InputError, match=f"sample to hold out, .* or remove {by}"):
        checked(file, test_fraction=0.04, **{by: "who"})


def test_groups_that_leave_one_sample_to_train_on_are_refused():
    by = np.arange(10) == 0
    # A seed draws the group of one, or that of nine.
    held_out = np.array([shuffled(2, seed)[0] for seed in range(8)])
    train, test = parts_by_group(by, 3, int(np.argmax(held_out)))
    assert (len(train), len(test)) == (9, 1)
    with pytest.raises(InputError, match="2 samples left for training, got 1"):
        parts_by_group(by, 3, int(np.argmin(held_out)))


def test_a_npy_file_has_no_groups():
    files = {"path": {"array": X}, "targets_path": {"array": Y}}
    with pytest.raises(InputError, match=r"group cannot be combined with a \.npy file"):
        checked(files, targets_path="y.npy", test_fraction=0.3, group="who")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"group": "a", "time": "b", "test_fraction": 0.1},
            "group cannot be combined with time",
        ),
        ({"group": "a"}, "group cannot be combined with test_fraction 0"),
    ],
)
def test_splits_that_contradict_are_refused(params, message):
    with pytest.raises(ValidationError, match=message):
        checked({"path": {"inputs": X, "targets": Y}}, **params)


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
            "cannot be combined with test_fraction",
        ),
    ],
)
def test_two_ways_to_a_test_set_are_refused(params, message):
    with pytest.raises(ValidationError, match=message):
        checked({}, **params)


NO_TARGETS = {
    "texts": np.array(list("abcabcabca")),
    "bytes": np.array(list("abcabcabca"), "S1"),
    "complex": np.arange(10) + 1j,
    "complex with no imaginary part": Y.astype(complex),
    "a number": np.array(1.5),
    "a whole number": np.array(1),
    "records": np.zeros(10, [("a", "f4"), ("b", "f4")]),
}


@pytest.mark.parametrize("form", NO_TARGETS)
@pytest.mark.parametrize("meant", [None, "labels", "values"])
@pytest.mark.parametrize("num_classes", [None, 3])
def test_targets_of_no_numbers_are_refused_however_they_are_meant(
    form, meant, num_classes
):
    file = {"path": {"inputs": X, "targets": NO_TARGETS[form]}}
    with pytest.raises(InputError, match="targets: expected"):
        checked(file, targets_as=meant, num_classes=num_classes)


def test_texts_of_numbers_may_be_targets():
    file = {"path": {"inputs": X, "targets": Y.astype(str)}}
    assert np.array_equal(checked(file, targets_as="labels")["targets"], Y)
    assert np.array_equal(checked(file, targets_as="values")["targets"][:, 0], Y)
