"""Classes and samples that are kept."""

import numpy as np
import pytest

from curvflow.errors import InputError
from curvflow.tasks.datasets.modifications import drawn, of_classes

LABELS = np.repeat([0, 1, 2], [60, 30, 10])


def draw(count, targets=LABELS, *, seed=0, purpose="train", stratified=False):
    return drawn(targets, count, seed=seed, purpose=purpose, stratified=stratified)


def test_classes_are_renamed_in_the_order_given():
    rows, labels = of_classes(np.array([5, 0, 3, 9, 3, 5]), [3, 9, 5])
    assert rows.tolist() == [0, 2, 3, 4, 5]
    assert labels.tolist() == [2, 0, 1, 0, 2]


@pytest.mark.parametrize("stratified", [False, True])
def test_samples_are_distinct_and_in_their_order(stratified):
    rows = draw(40, stratified=stratified)
    assert len(rows) == 40
    assert np.all(np.diff(rows) > 0)
    assert np.array_equal(draw(100, stratified=stratified), np.arange(100))


def test_a_larger_subset_keeps_the_smaller():
    assert set(draw(10)) < set(draw(30)) < set(draw(31))


def test_draws_follow_seed_and_purpose():
    first = draw(20)
    assert np.array_equal(first, draw(20))
    assert not np.array_equal(first, draw(20, seed=1))
    assert not np.array_equal(first, draw(20, purpose="test"))


@pytest.mark.parametrize(
    ("count", "shares"), [(10, [6, 3, 1]), (50, [30, 15, 5]), (7, [4, 2, 1])]
)
def test_a_stratified_draw_has_the_shares_of_the_whole(count, shares):
    for seed in range(3):
        rows = draw(count, stratified=True, seed=seed)
        assert np.bincount(LABELS[rows], minlength=3).tolist() == shares


def test_more_samples_than_there_are_are_refused():
    with pytest.raises(InputError, match=r"num_train: expected at most the 100 .* 101"):
        draw(101)


def test_values_cannot_be_stratified():
    with pytest.raises(InputError, match="stratified cannot be combined with values"):
        draw(2, np.zeros((5, 1)), stratified=True)


def test_draws_are_frozen():
    assert draw(8).tolist() == [8, 44, 45, 47, 51, 71, 79, 96]
    stratified = draw(8, purpose="test", stratified=True)
    assert stratified.tolist() == [23, 44, 49, 51, 52, 64, 87, 90]
