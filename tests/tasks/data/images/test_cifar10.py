"""CIFAR-10, small as made up and whole where it is found."""

import numpy as np
import pytest

from tests.flows.published import fakes, real


def test_images_have_three_channels_and_are_normalised_by_each():
    arrays = fakes.CATALOGUE["cifar10"].layouts[0].decode(fakes.ten_contents())
    actual = real.outcome("cifar10", arrays, normalise="standard", crop=31).arrays
    assert actual["inputs"].shape == (100, 3, 31, 31)
    means = actual["inputs"].mean(axis=(0, 2, 3), dtype=np.float64)
    assert means == pytest.approx(0, abs=1e-6)


@pytest.mark.images
def test_the_whole_set_has_the_published_counts_means_and_order():
    actual = real.outcome("cifar10", real.read("cifar10")).arrays
    assert np.bincount(actual["targets"].astype(int)).tolist() == [5000] * 10
    assert np.bincount(actual["test_targets"].astype(int)).tolist() == [1000] * 10
    means = actual["inputs"].mean(axis=(0, 2, 3), dtype=np.float64)
    assert means == pytest.approx([0.49139968, 0.48215841, 0.44653091], rel=1e-6)
    spread = [actual["inputs"][:, c].std(dtype=np.float64) for c in range(3)]
    assert spread == pytest.approx([0.24703223, 0.24348513, 0.26158784], rel=1e-6)
    assert actual["targets"][:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
