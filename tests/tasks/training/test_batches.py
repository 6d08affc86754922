"""The order in which models see their data."""

import pytest
import torch

from curvflow.tasks.networks.problems import Samples
from curvflow.tasks.training.batches import Batches


def samples(models=1, count=10):
    x = torch.arange(count * models).reshape(models, count, 1).double()
    return Samples(x, x.squeeze(-1))


@pytest.mark.parametrize("models", [1, 2])
def test_every_sample_comes_once_per_epoch_in_batches_of_the_size(models):
    batches = Batches(samples(models), [0, 1], 4)
    for _ in range(2):
        parts = list(batches.epoch())
        assert [part.count for part in parts] == [4, 4, 2]
        seen = torch.cat([part.targets for part in parts], dim=1)
        expected = samples(models).targets.expand(2, -1)
        assert torch.equal(seen.sort(dim=1).values, expected)


def test_equal_seeds_see_equal_batches_and_others_do_not():
    first = next(Batches(samples(), [5, 5, 6], 4).epoch()).targets
    assert torch.equal(first[0], first[1])
    assert not torch.equal(first[0], first[2])


def test_the_order_depends_on_no_sibling_and_changes_each_epoch():
    together, alone = Batches(samples(), [3, 7], 5), Batches(samples(), [7], 5)
    orders = []
    for _ in range(2):
        pairs = zip(together.epoch(), alone.epoch(), strict=True)
        orders.append(
            [(both.targets[1], shuffled.targets[0]) for both, shuffled in pairs]
        )
    assert all(torch.equal(a, b) for epoch in orders for a, b in epoch)
    assert not torch.equal(orders[0][0][0], orders[1][0][0])


@pytest.mark.parametrize("size", [None, 10, 99])
def test_a_full_batch_is_not_shuffled(size):
    (only,) = Batches(samples(), [0, 1], size).epoch()
    assert torch.equal(only.targets, samples().targets)
