"""Dropout, activations and flattening."""

import pytest
import torch

from curvflow.tasks.networks.network import ForwardPass
from curvflow.tasks.networks.parts import activation, chain, dropout_part, flatten
from curvflow.tasks.numerics import stream
from curvflow.tasks.training.gradients import Noise

LIKE = torch.zeros(1, dtype=torch.float64)


def draw(*seeds, step=0):
    return Noise(seeds, step, "dropout", LIKE).uniform()


def passed(part, x, forward_pass):
    return part(tuple(x.shape[2:])).apply(forward_pass, x)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_mean_and_leaves_out_its_share(rate):
    x = torch.ones(2, 50, 400, dtype=torch.float64)
    y = passed(dropout_part(rate), x, ForwardPass({}, draw(0, 1)))
    count = y.numel()
    left_out = (y == 0).double().mean().item()
    assert abs(left_out - rate) < 5 * (rate * (1 - rate) / count) ** 0.5
    assert set(y.unique().tolist()) == {0.0, 1 / (1 - rate)}
    spread = (rate / (1 - rate) / count) ** 0.5
    assert abs(y.mean().item() - 1) < 5 * spread


def test_dropout_draws_by_the_seed_of_a_model_and_anew_at_every_step():
    x = torch.ones(2, 3, 100, dtype=torch.float64)
    first = passed(dropout_part(0.5), x, ForwardPass({}, draw(4, 5)))
    other = passed(dropout_part(0.5), x, ForwardPass({}, draw(5, 4)))
    later = passed(dropout_part(0.5), x, ForwardPass({}, draw(4, 5, step=1)))
    assert torch.equal(first, other.flip(0))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first, later)


def test_dropout_does_nothing_at_evaluation_nor_where_paths_are_counted():
    x = torch.randn(2, 3, 4, generator=stream(0, "x"))
    for forward_pass in (ForwardPass({}), ForwardPass({}, power=2.0)):
        assert torch.equal(passed(dropout_part(0.5), x, forward_pass), x)


def test_activations_pass_on_what_they_get_where_paths_are_counted():
    x = torch.randn(2, 3, 4, generator=stream(0, "x"))
    part = activation(torch.tanh)
    assert torch.equal(passed(part, x, ForwardPass({})), torch.tanh(x))
    assert torch.equal(passed(part, x, ForwardPass({}, power=1.0)), x)


def test_flattening_makes_one_row_of_a_sample():
    x = torch.arange(24.0).reshape(1, 2, 3, 2, 2)
    part = chain(flatten(), activation(torch.relu))
    assert part((3, 2, 2)).out == (12,)
    assert torch.equal(passed(part, x, ForwardPass({})), x.reshape(1, 2, 12))
