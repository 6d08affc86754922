"""Exclusive or, distributed over pairs."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from curvflow.schemas.kinds.data.xord import XordParams
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.registry import Machine, computes_each


@computes_each("data.xord")
def xord(member: Member, machine: Machine) -> Outcome:
    """Draw strings of pairs of signs, none of them twice, and label them.

    Args:
        member: how many strings, of how many pairs, and what makes one positive.
        machine: not used.

    Returns:
        The data set; inputs have shape (N, pairs, 2). Training and test are half
        positive, in random order, and have no string in common.

    Reference:
        Jarvis (2021), Generalizing Regularization of Neural Networks to Correlated
        Parameter Spaces: 5 pairs, 12 + 10 samples, exactly one positive pair.
    """
    params = cast("XordParams", member.params)
    generator = stream(params.seed, "data.xord")
    codes = torch.randperm(4**params.pairs, generator=generator)
    # Of each pair the even bit, set where its two bits differ.
    differ = (codes ^ (codes >> 1)) & sum(4**pair for pair in range(params.pairs))
    positive = differ != 0
    if params.positives == "one":
        positive &= (differ & (differ - 1)) == 0
    classes = codes[differ == 0], codes[positive]
    arrays, start = [], 0
    for count in (params.num_train // 2, params.num_test // 2):
        drawn = torch.cat([pool[start : start + count] for pool in classes])
        order = torch.randperm(2 * count, generator=generator)
        inputs, targets = _strings(drawn[order], params.pairs), order >= count
        arrays += [inputs, _targets(targets, params.labels)]
        start += count
    return Outcome(dataset(*arrays))


def _strings(codes: Tensor, pairs: int) -> Array:
    bits = (codes[:, None] >> torch.arange(2 * pairs)) & 1
    return (2.0 * bits - 1).double().reshape(-1, pairs, 2).numpy()


def _targets(positive: Tensor, labels: str) -> Array:
    if labels == "index":
        return positive.long().numpy()
    return (2.0 * positive - 1).double()[:, None].numpy()
