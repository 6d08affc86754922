"""Label noise and one column per class."""

import numpy as np
import pytest

from curvflow.tasks.datasets.modifications import noisy, one_hot

LABELS = np.arange(1000) % 5


@pytest.mark.parametrize("share", [0.0, 0.137, 1.0])
def test_exactly_the_share_of_labels_is_another_class(share):
    actual = noisy(LABELS, 5, share, seed=0)
    assert (actual != LABELS).sum() == round(share * 1000)
    assert set(actual) == set(range(5))


def test_other_classes_are_drawn_uniformly():
    actual = noisy(np.zeros(6000, int), 4, 1.0, seed=1)
    counts = np.bincount(actual, minlength=4)
    assert counts[0] == 0
    # Five standard errors of a third of 6000.
    assert np.abs(counts[1:] - 2000).max() < 5 * np.sqrt(6000 * 2 / 9)


def test_more_noise_keeps_what_less_replaced():
    few, many = (noisy(LABELS, 5, share, seed=0) for share in (0.1, 0.3))
    replaced = few != LABELS
    assert np.array_equal(many[replaced], few[replaced])


def test_noise_follows_its_seed():
    first = noisy(LABELS, 5, 0.5, seed=0)
    assert np.array_equal(first, noisy(LABELS, 5, 0.5, seed=0))
    assert not np.array_equal(first, noisy(LABELS, 5, 0.5, seed=1))


def test_one_hot_rows_have_one_1_at_their_label():
    actual = one_hot(np.array([2.0, 0.0]), 4)
    assert actual.tolist() == [[0, 0, 1, 0], [1, 0, 0, 0]]


def test_the_noise_of_a_seed_is_frozen():
    actual = noisy(np.zeros(12, int), 5, 0.5, seed=0)
    assert actual.tolist() == [0, 2, 4, 4, 0, 1, 2, 0, 0, 1, 0, 0]
