"""CIFAR-100, small as made up and whole where it is found."""

import numpy as np
import pytest

from tests.flows.published import fakes, real


def test_classes_are_the_hundred_fine_ones():
    arrays = fakes.CATALOGUE["cifar100"].layouts[0].decode(fakes.hundred_contents())
    actual = real.outcome("cifar100", arrays, classes=[99, 3, 50]).arrays
    assert actual["num_classes"] == 3
    assert sorted(actual["targets"]) == [0, 1, 2]
    row = int(np.flatnonzero(actual["targets"] == 0)[0])
    original = arrays["inputs"][arrays["targets"] == 99][0]
    assert np.array_equal(actual["inputs"][row], (original / 255).astype(np.float32))


@pytest.mark.images
def test_the_whole_set_has_the_published_counts_and_means():
    actual = real.outcome("cifar100", real.read("cifar100")).arrays
    assert np.bincount(actual["targets"].astype(int)).tolist() == [500] * 100
    assert np.bincount(actual["test_targets"].astype(int)).tolist() == [100] * 100
    means = actual["inputs"].mean(axis=(0, 2, 3), dtype=np.float64)
    assert means == pytest.approx([0.5071, 0.4865, 0.4409], abs=1e-4)
