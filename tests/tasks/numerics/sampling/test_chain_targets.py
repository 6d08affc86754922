"""Targets of chains: which parameters move, and what is drawn for each target."""

import torch

from curvflow.tasks.numerics.sampling.chain_targets import ChainTargets


def targets(*seeds, free=None):
    """Targets of four parameters, of which no loss is computed."""
    weights = torch.zeros(len(seeds), 4, dtype=torch.float64)

    def unused(*_):
        raise AssertionError

    return ChainTargets(unused, 10, weights, seeds, free, unused, unused)


def test_directions_are_of_unit_length_and_zero_where_nothing_moves():
    free = torch.tensor([True, False, True, False])
    drawn = targets(0, 1, free=free).directions([0, 1, 1])
    assert drawn[:, ~free].eq(0).all()
    torch.testing.assert_close(drawn.norm(dim=1), torch.ones(3, dtype=torch.float64))
    assert targets(0, free=free).num_free == 2
    assert targets(0).num_free == 4


def test_directions_of_a_target_depend_on_its_seed_and_not_on_the_others():
    alone = targets(5).directions([0, 0])
    beside = targets(3, 5).directions([1, 0, 1])
    assert torch.equal(alone, beside[[0, 2]])
    assert not torch.equal(*alone)
    assert not torch.equal(beside[1], alone[0])
