"""Modules with activation checkpoints, in products and in training."""

import threading
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils import checkpoint

import curvflow
from curvflow.tasks.numerics.recomputation import computed_once
from tests.tasks.toys import blobs, train_all, train_member


class Checkpointed(nn.Module):
    """Blocks of which some are computed again as gradients are taken."""

    def __init__(self, again=(), reentrant=False, width=4):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(3, width), nn.Linear(width, width)])
        self.head = nn.Linear(width, 3)
        self.again, self.reentrant = again, reentrant

    def forward(self, x):
        for number, block in enumerate(self.blocks):
            if number in self.again:
                x = checkpoint.checkpoint(
                    self.block, block, x, use_reentrant=self.reentrant
                )
            else:
                x = self.block(block, x)
        return self.head(x)

    @staticmethod
    def block(layer, x):
        return torch.tanh(layer(x))


def settings(seed):
    draw = np.random.default_rng(seed)
    again = [n for n in range(2) if draw.random() < 0.6] or [1]
    return {"again": again, "reentrant": bool(draw.random() < 0.5)}


# Torch says so of calls that want no gradient, too.
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("order", ["forward_over_reverse", "reverse_over_reverse"])
@pytest.mark.parametrize("seed", range(6))
def test_products_are_those_of_the_module_without(seed, order):
    torch.manual_seed(seed)
    module = Checkpointed(**settings(seed)).double()
    plain = Checkpointed().double()
    plain.load_state_dict(module.state_dict())
    data = torch.randn(9, 3).double(), torch.arange(9) % 3
    columns = torch.randn(sum(p.numel() for p in plain.parameters()), 2).double()
    products = [
        curvflow.hessian(net, nn.CrossEntropyLoss(), data, order=order) @ columns
        for net in (module, plain)
    ]
    torch.testing.assert_close(*products)


@pytest.mark.parametrize("num_seeds", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_training_is_that_of_the_module_without(seed, num_seeds):
    weights = [
        [
            fit.arrays["weights"][-1]
            for fit in train_all(
                [
                    train_member(blobs(), model=model(**given), seed=s, epochs=3)
                    for s in range(num_seeds)
                ]
            )
        ]
        for given in (settings(seed), {})
    ]
    np.testing.assert_allclose(*weights, rtol=1e-12, atol=1e-14)


def model(**kwargs):
    name = f"{__name__}:Checkpointed"
    return {"factory": name, "kwargs": kwargs}


def test_a_loop_of_ones_own_computes_again_as_ever():
    module, x = Checkpointed([0, 1]), torch.randn(5, 3)
    calls = []
    module.blocks[1].register_forward_hook(lambda *_: calls.append(1))
    before = vars(checkpoint).copy()
    curvflow.hessian(module, nn.CrossEntropyLoss(), (x, torch.arange(5) % 3)).trace()
    assert vars(checkpoint) == before
    calls.clear()
    cross_entropy(module(x), torch.arange(5) % 3).backward()
    assert len(calls) == 2


def test_blocks_of_several_threads_may_overlap():
    before, first, second = (
        vars(checkpoint).copy(),
        threading.Event(),
        threading.Event(),
    )

    def hold(mine, other):
        with computed_once():
            mine.set()
            assert other.wait(5)
            assert checkpoint.CheckpointFunction is not before["CheckpointFunction"]

    thread = threading.Thread(target=hold, args=(first, second))
    thread.start()
    hold(second, first)
    thread.join()
    assert vars(checkpoint) == before


@pytest.mark.parametrize("is_within", [True, False])
@pytest.mark.parametrize("reentrant", [True, False])
def test_a_thread_of_ones_own_computes_again_meanwhile(reentrant, is_within):
    module, x = Checkpointed([0, 1], reentrant), torch.randn(5, 3, requires_grad=True)
    calls, before = [], vars(checkpoint).copy()
    module.blocks[1].register_forward_hook(lambda *_: calls.append(1))

    def train():
        with computed_once() if is_within else nullcontext():
            cross_entropy(module(x), torch.arange(5) % 3).backward()

    with computed_once():
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
        assert len(calls) == (1 if is_within else 2)
        train()
        assert len(calls) == (2 if is_within else 3)
    assert vars(checkpoint) == before


def test_what_a_function_raises_is_raised_from_within():
    def fails(_):
        raise ValueError("own")

    for reentrant in (True, False):
        with computed_once(), pytest.raises(ValueError, match="own"):
            checkpoint.checkpoint(fails, torch.ones(2), use_reentrant=reentrant)
