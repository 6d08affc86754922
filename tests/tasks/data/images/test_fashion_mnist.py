"""Fashion-MNIST, small as made up and whole where it is found."""

import numpy as np
import pytest

from tests.flows.published import fakes, real


def test_it_is_read_as_mnist_is():
    contents = fakes.idx_contents(seed=2)
    arrays = fakes.CATALOGUE["fashion_mnist"].layouts[0].decode(contents)
    actual = real.outcome("fashion_mnist", arrays, num_train=30).arrays
    assert actual["inputs"].shape == (30, 1, 28, 28)
    assert actual["num_classes"] == 10


@pytest.mark.images
def test_the_whole_set_has_the_published_counts_means_and_order():
    actual = real.outcome("fashion_mnist", real.read("fashion_mnist")).arrays
    assert np.bincount(actual["targets"].astype(int)).tolist() == [6000] * 10
    assert np.bincount(actual["test_targets"].astype(int)).tolist() == [1000] * 10
    mean = actual["inputs"].mean(dtype=np.float64)
    assert mean == pytest.approx(0.28604, abs=5e-6)
    assert actual["inputs"].std(dtype=np.float64) == pytest.approx(0.35302, abs=5e-6)
    assert actual["targets"][:10].tolist() == [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]
