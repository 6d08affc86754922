"""MNIST, small as made up and whole as published."""

import numpy as np
import pytest

from curvflow.schemas.kinds.shared.images import MNIST
from curvflow.tasks.datasets.images import member_bytes
from tests.flows.published import fakes, real
from tests.tasks.toys import member


@pytest.fixture(scope="module")
def files():
    return real.read("mnist")


def small(**params):
    contents = fakes.idx_contents()
    arrays = fakes.CATALOGUE["mnist"].layouts[0].decode(contents)
    return real.outcome("mnist", arrays, **params).arrays


def test_pixels_are_in_0_to_1_and_labels_are_the_digits():
    actual = small()
    assert actual["inputs"].shape == (60, 1, 28, 28)
    assert (actual["inputs"].min(), actual["inputs"].max()) == (0, 1)
    assert set(actual["targets"]) == set(range(10))
    assert actual["num_classes"] == 10


def test_five_classes_at_ten_pixels_are_the_centres_of_these_images():
    whole, actual = small(), small(classes=[0, 1, 2, 3, 4], crop=10, flatten=True)
    kept = whole["targets"] < 5
    assert np.array_equal(actual["targets"], whole["targets"][kept])
    centres = whole["inputs"][kept][:, 0, 9:19, 9:19]
    assert np.array_equal(actual["inputs"], centres.reshape(-1, 100))


def test_images_may_be_their_own_targets():
    actual = small(crop=10, targets="inputs")
    assert actual["inputs"].shape == (60, 1, 10, 10)
    assert np.array_equal(actual["targets"], actual["inputs"].reshape(60, 100))
    assert (actual["targets"].dtype, actual["num_classes"]) == (np.float64, 0)


def test_pixels_may_stay_bytes_in_value():
    actual = small(normalise="none")["inputs"]
    assert np.array_equal(actual, small()["inputs"] * np.float32(255))


def test_memory_is_estimated_above_what_is_returned_and_written():
    for params in ({}, {"num_train": 100, "num_test": 0}, {"classes": [1, 7]}):
        node = member("data.mnist", params)
        train, test = MNIST.counts(node.params.classes)
        rows = params.get("num_train", train) + params.get("num_test", test)
        assert 2 * 4 * 784 * rows < member_bytes(node) < 6 * 4 * 784 * rows
        mirrored = member("data.mnist", {**params, "targets": "inputs"})
        assert member_bytes(mirrored) > member_bytes(node) + 8 * 784 * rows


@pytest.mark.images
def test_the_whole_set_has_the_published_counts_means_and_order(files):
    actual = real.outcome("mnist", files).arrays
    for prefix, counts in (("", MNIST.train_counts), ("test_", MNIST.test_counts)):
        labels = actual[f"{prefix}targets"].astype(int)
        assert tuple(np.bincount(labels)) == counts
    assert actual["inputs"].shape == (60000, 1, 28, 28)
    assert actual["test_inputs"].shape == (10000, 1, 28, 28)
    mean = actual["inputs"].mean(dtype=np.float64)
    assert mean == pytest.approx(0.1306604762738429, rel=1e-7)
    assert actual["inputs"].std(dtype=np.float64) == pytest.approx(0.30810780385646264)
    assert actual["targets"][:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert actual["test_targets"][:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]


@pytest.mark.images
def test_modifications_of_the_whole_set(files):
    actual = real.outcome(
        "mnist",
        files,
        classes=[0, 1, 2, 3, 4],
        num_train=1000,
        num_test=100,
        stratified=True,
        crop=10,
        label_noise=0.1,
        normalise="standard",
        flatten=True,
        labels="one_hot",
    ).arrays
    assert actual["inputs"].shape == (1000, 100)
    assert actual["targets"].shape == (1000, 5)
    # 30596 images of these five, in the shares 5923, 6742, 5958, 6131, 5842.
    clean = real.outcome(
        "mnist", files, classes=[0, 1, 2, 3, 4], num_train=1000, stratified=True
    ).arrays["targets"]
    assert np.bincount(clean.astype(int)).tolist() == [194, 220, 195, 200, 191]
    assert (actual["targets"].argmax(1) != clean).sum() == 100
    assert actual["inputs"].mean(dtype=np.float64) == pytest.approx(0, abs=1e-6)
    assert actual["inputs"].std(dtype=np.float64) == pytest.approx(1, rel=1e-6)


@pytest.mark.images
def test_disjoint_halves_of_the_classes_hold_all_images(files):
    halves = [
        real.outcome("mnist", files, classes=c, crop=1).arrays["targets"]
        for c in ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9])
    ]
    assert [len(half) for half in halves] == [30596, 29404]
    assert set(halves[1]) == set(range(5))


@pytest.mark.images
def test_permuted_images_keep_their_pixels_and_lose_their_places(files):
    plain = real.outcome("mnist", files, num_train=200).arrays["inputs"]
    moved = real.outcome("mnist", files, num_train=200, permute_pixels=True)
    pixels = moved.arrays["inputs"]
    assert np.array_equal(
        np.sort(plain.reshape(200, -1)), np.sort(pixels.reshape(200, -1))
    )
    # The border is black in every image; after the permutation some of it is not.
    assert plain[:, 0, 0].max() == 0 < pixels[:, 0, 0].max()
