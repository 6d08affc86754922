"""Modifications of any data set, and that none disturbs another's draws."""

import numpy as np
import pytest

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.tasks.data.modify import member_bytes
from curvflow.tasks.datasets.modifications import scaled
from tests.tasks.toys import (
    as_data,
    assert_declared,
    blobs,
    compute,
    member,
    waves,
    xor,
)


def pictures(count=60):
    rng = np.random.default_rng(3)
    x, y = rng.uniform(size=(count, 2, 6, 6)), np.arange(count) % 4
    return as_data(dataset(x[10:], y[10:], x[:10], y[:10]), "pictures")


def modified(data=None, **params):
    (outcome,) = compute(
        "data.modify", [member("data.modify", params, data=data or pictures())]
    )
    assert_declared("data.modify", outcome)
    return outcome.arrays


def test_without_a_wish_nothing_changes():
    for data in (pictures(), blobs(), waves()):
        for name, array in modified(data).items():
            assert np.array_equal(array, data[name])


def test_classes_are_kept_in_both_sets_and_renamed():
    actual, data = modified(classes=[3, 1]), pictures()
    assert actual["num_classes"] == 2
    kept = np.isin(data["targets"], [1, 3])
    assert np.array_equal(actual["inputs"], data["inputs"][kept])
    assert np.array_equal(actual["targets"], data["targets"][kept] == 1)
    assert set(actual["test_targets"]) == {0, 1}


def test_parity_makes_two_classes_of_the_labels_as_they_were():
    actual, data = modified(relabel="parity"), pictures()
    for prefix in ("", "test_"):
        assert np.array_equal(actual[f"{prefix}inputs"], data[f"{prefix}inputs"])
        assert np.array_equal(actual[f"{prefix}targets"], data[f"{prefix}targets"] % 2)
    assert actual["num_classes"] == 2
    chosen = modified(relabel="parity", classes=[3, 1, 2])
    kept = data["targets"][data["targets"] > 0]
    assert np.array_equal(chosen["targets"], kept % 2)
    assert modified(relabel="parity", classes=[0, 2])["num_classes"] == 2


def test_noise_after_parity_turns_labels_round():
    actual = modified(relabel="parity", label_noise=1.0, labels="one_hot")
    assert actual["targets"].shape == (50, 2)
    assert np.array_equal(actual["targets"].argmax(1), 1 - pictures()["targets"] % 2)


def test_two_disjoint_halves_make_up_the_whole():
    rows = [modified(classes=c)["inputs"] for c in ([0, 1], [2, 3])]
    assert sum(map(len, rows)) == len(pictures()["inputs"])


def test_all_at_once_is_made_in_the_given_order():
    steps = [
        {"classes": [0, 2, 3]},
        {"num_train": 20, "num_test": 4},
        {"crop": 3},
        {"label_noise": 0.25},
        {"permute_pixels": True},
        {"normalise": "standard"},
        {"flatten": True},
        {"labels": "one_hot"},
    ]
    one_by_one = pictures()
    for step in steps:
        one_by_one = as_data(modified(one_by_one, **step))
    at_once = modified(**{name: v for step in steps for name, v in step.items()})
    for name, array in at_once.items():
        np.testing.assert_allclose(array, one_by_one[name], rtol=1e-12, err_msg=name)
    assert at_once["inputs"].shape == (20, 18)
    assert at_once["num_classes"] == 3


@pytest.mark.parametrize("data", [pictures, blobs, waves, lambda: xor("sign")])
def test_inputs_may_be_their_own_targets(data):
    actual = modified(data(), targets="inputs", normalise="standard")
    rows = modified(data(), flatten=True, normalise="standard")
    for prefix in ("", "test_"):
        assert np.array_equal(actual[f"{prefix}targets"], rows[f"{prefix}inputs"])
    assert actual["num_classes"] == 0


def test_inputs_are_their_own_targets_after_all_else():
    wishes = {"classes": [0, 2, 3], "num_train": 20, "stratified": True, "crop": 3}
    wishes |= {"permute_pixels": True, "normalise": "unit", "num_test": 0}
    actual, labelled = modified(**wishes, targets="inputs"), modified(**wishes)
    assert np.array_equal(actual["inputs"], labelled["inputs"])
    assert np.array_equal(actual["targets"], labelled["inputs"].reshape(20, 18))
    assert actual["test_targets"].shape == (0, 18)


def test_single_signs_as_their_own_targets_are_values():
    signs = np.array([[-1.0], [1.0], [1.0]])
    actual = modified(as_data(dataset(signs, np.array([0, 1, 0]))), targets="inputs")
    assert actual["num_classes"] == 0


def test_an_empty_test_set_goes_through_every_step():
    actual = modified(
        num_test=0, crop=4, normalise="standard", permute_pixels=True, flatten=True
    )
    assert actual["test_inputs"].shape == (0, 32)


def test_no_step_moves_the_draws_of_another():
    both = modified(num_train=20, label_noise=0.5, permute_pixels=True, num_test=5)
    plain = modified(num_train=20)
    for before, after in zip(plain["inputs"], both["inputs"], strict=True):
        assert np.array_equal(np.sort(before.ravel()), np.sort(after.ravel()))
    noise = modified(num_train=20, label_noise=0.5)
    assert np.array_equal(noise["targets"], both["targets"])
    pixels = modified(num_train=20, permute_pixels=True)
    assert np.array_equal(pixels["inputs"], both["inputs"])


def test_noise_is_in_the_training_labels_alone():
    actual = modified(label_noise=1.0)
    assert np.all(actual["targets"] != pictures()["targets"])
    assert np.array_equal(actual["test_targets"], pictures()["test_targets"])


def test_one_hot_targets_keep_the_number_of_classes():
    actual = modified(labels="one_hot")
    assert np.array_equal(actual["targets"].argmax(1), pictures()["targets"])
    assert np.array_equal(actual["test_targets"].sum(1), np.ones(10))
    assert actual["num_classes"] == 4


def test_classes_that_no_sample_is_left_of_count_nevertheless():
    actual = modified(num_train=2, num_test=0)
    assert actual["num_classes"] == 4
    assert len(set(actual["targets"])) <= 2


def test_signs_stay_two_classes():
    actual = modified(xor("sign"), normalise="unit")
    assert actual["num_classes"] == 2
    assert actual["targets"].tolist() == [[-1], [1], [1], [-1]]


def test_values_may_be_drawn_scaled_and_permuted():
    actual = modified(waves(), num_train=10, normalise="unit", permute_pixels=True)
    assert actual["inputs"].shape == (10, 3)
    assert (actual["inputs"].min(), actual["inputs"].max()) == (0, 1)


@pytest.mark.parametrize(
    ("data", "params", "message"),
    [
        (
            waves,
            {"relabel": "parity"},
            "relabel cannot be combined with values as targets",
        ),
        (
            waves,
            {"classes": [0, 1]},
            "classes cannot be combined with values as targets",
        ),
        (
            waves,
            {"label_noise": 0.1},
            "label_noise cannot be combined with values as targets",
        ),
        (
            waves,
            {"labels": "one_hot"},
            "labels cannot be combined with values as targets",
        ),
        (waves, {"stratified": True, "num_train": 4}, "stratified cannot be combined"),
        (waves, {"targets": "inputs", "classes": [0, 1]}, "classes cannot be combined"),
        (waves, {"num_train": 21}, "num_train: expected at most the 20 samples"),
        (waves, {"num_test": 1}, "num_test: expected at most the 0 samples"),
        (blobs, {"classes": [0, 3]}, "classes: expected labels below 3, got 3"),
        (blobs, {"crop": 2}, "crop: expected images"),
    ],
)
def test_what_the_data_do_not_have_is_refused(data, params, message):
    with pytest.raises(InputError, match=message):
        modified(data(), **params)


def test_a_member_twice_in_a_tile_is_computed_once():
    node = member("data.modify", {"num_train": 5}, data=pictures())
    first, second = compute("data.modify", [node, node])
    assert first is second


def test_memory_is_estimated_from_the_data_taken():
    data = pictures()
    node = member("data.modify", {}, data=data)
    assert member_bytes(node) >= 3 * data["inputs"].nbytes
    mirrored = member("data.modify", {"targets": "inputs"}, data=data)
    assert member_bytes(mirrored) >= member_bytes(node) + 2 * data["inputs"].nbytes


@pytest.mark.parametrize("exponent", [-300, -60, -44, -30, 0, 30, 37, 39, 100, 200])
def test_a_scale_beyond_single_precision_is_refused(exponent):
    """By it inputs were 0 or NaN: it is kept so that no last bits enter a digest."""
    inputs = np.random.default_rng(0).normal(size=(20, 2)) * [1, 10.0**exponent]
    if -37 < exponent < 38:
        train, _ = scaled(inputs, inputs[:0], "standard", np.float64)
        np.testing.assert_allclose(train.std(0), 1, rtol=1e-6)
        return
    with pytest.raises(InputError, match=r"^normalise: expected inputs whose mean and"):
        scaled(inputs, inputs[:0], "standard", np.float64)


@pytest.mark.parametrize("value", [0.0, 1e-60, 3.5, 1e37])
def test_what_does_not_vary_may_be_small_and_not_beyond(value):
    inputs = np.stack([np.arange(6.0), np.full(6, value)], axis=1)
    train, _ = scaled(inputs, inputs[:0], "standard", np.float64)
    np.testing.assert_allclose(train[:, 1], 0, atol=1e-7 * value + 1e-59)
    with pytest.raises(InputError, match=r"got a mean of inf and a deviation of"):
        scaled(np.maximum(inputs, 1e60), inputs[:0], "standard", np.float64)
