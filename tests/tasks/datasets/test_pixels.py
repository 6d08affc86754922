"""Crops, scales and permutations."""

import numpy as np
import pytest

from curvflow.errors import InputError
from curvflow.tasks.datasets.modifications import cropped, permuted, scaled

RNG = np.random.default_rng(0)
BYTES = RNG.integers(0, 256, (50, 3, 6, 8), dtype=np.uint8)
VALUES = RNG.normal(2, 3, (50, 7))


def test_a_crop_is_central():
    images = np.arange(2 * 28 * 28).reshape(2, 1, 28, 28)
    actual = cropped(images, 10)
    assert np.array_equal(actual, images[:, :, 9:19, 9:19])
    assert np.array_equal(cropped(images, 28), images)
    assert np.array_equal(cropped(images, 27), images[:, :, :27, :27])


@pytest.mark.parametrize("inputs", [BYTES, VALUES])
def test_a_crop_of_what_is_smaller_or_no_image_is_refused(inputs):
    with pytest.raises(
        InputError, match=r"crop: expected images .* at least 7x7 pixels"
    ):
        cropped(inputs, 7)


def test_unit_divides_bytes_by_255_whatever_occurs():
    dark = BYTES // 2
    train, test = scaled(dark, BYTES, "unit", np.float32)
    assert train.dtype == test.dtype == np.float32
    assert np.array_equal(train, (dark / 255).astype(np.float32))
    assert np.array_equal(test, (BYTES / 255).astype(np.float32))


def test_unit_of_other_numbers_is_set_by_the_training_inputs():
    train, test = scaled(VALUES, VALUES * 2, "unit", np.float64)
    assert (train.min(), train.max()) == (0, 1)
    assert test.max() > 1


@pytest.mark.parametrize("inputs", [BYTES, BYTES / 255, VALUES])
def test_standard_inputs_have_mean_0_and_deviation_1(inputs):
    axes = (0, 2, 3) if inputs.ndim == 4 else 0
    train, test = scaled(inputs, inputs[:5], "standard", np.float64)
    assert train.mean(axis=axes) == pytest.approx(0, abs=1e-6)
    assert train.std(axis=axes) == pytest.approx(1, rel=1e-6)
    assert np.array_equal(test, train[:5])


def test_what_does_not_vary_is_shifted_alone():
    same = np.full((4, 2), 3.0)
    for to in ("standard", "unit"):
        assert scaled(same, same + 1, to, np.float64)[1].tolist() == [[1, 1]] * 4


def test_none_leaves_numbers_as_they_are():
    assert np.array_equal(scaled(BYTES, BYTES, "none", np.float32)[0], BYTES)


def test_one_permutation_moves_all_images_and_channels_alike():
    marks = np.arange(48).reshape(1, 1, 6, 8) + 1000 * np.arange(3).reshape(1, 3, 1, 1)
    actual = permuted(np.concatenate([marks, marks + 100]), seed=4)
    order = actual[0, 0].ravel()
    assert sorted(order) == list(range(48))
    assert not np.array_equal(order, np.arange(48))
    assert np.array_equal(actual[1, 2].ravel(), order + 2100)
    assert np.array_equal(permuted(marks, 4)[0, 0].ravel(), order)
    assert not np.array_equal(permuted(marks, 5)[0, 0].ravel(), order)


def test_columns_are_permuted_where_there_are_no_images():
    actual = permuted(VALUES, seed=0)
    assert np.array_equal(np.sort(actual, axis=1), np.sort(VALUES, axis=1))
    assert not np.array_equal(actual, VALUES)


def test_the_permutation_of_a_seed_is_frozen():
    actual = permuted(np.arange(12).reshape(1, 1, 3, 4), seed=0)
    assert actual.ravel().tolist() == [7, 5, 11, 9, 10, 0, 2, 1, 3, 4, 6, 8]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [3, 21, 1000])
def test_rounding_of_a_mean_is_no_deviation(dtype, count):
    values = np.array([0.1, 0.7, 9.87, 123.456, 0.0], dtype=dtype)
    train = np.tile(values, (count, 1))
    scaled_train, scaled_test = scaled(train, train[:2] + 1, "standard", np.float32)
    assert np.abs(scaled_train).max() < 1e-4
    assert np.abs(scaled_test - 1).max() < 1e-4
