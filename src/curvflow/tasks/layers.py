"""Dense layers for a batch of models, by batched matrix products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from curvflow.tasks.networks import Layout, Network


def dense_layers(
    widths: Sequence[int], activation: Callable[[Tensor], Tensor], *, bias: bool
) -> Network:
    """Build dense layers with an activation between them.

    Args:
        widths: from the inputs, flattened, to the outputs.
        activation: applied after every layer but the last.
        bias: whether layers have one.

    Returns:
        The network; weights have shape (out, in).
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for number, (before, after) in enumerate(pairwise(widths), start=1):
        shapes[f"layer{number}.weight"] = (after, before)
        if bias:
            shapes[f"layer{number}.bias"] = (after,)
    step = 2 if bias else 1

    def forward(tensors: Sequence[Tensor], inputs: Tensor) -> Tensor:
        x = inputs.flatten(2).expand(tensors[0].shape[0], -1, -1)
        for start in range(0, len(tensors), step):
            weight = tensors[start].mT
            if bias:
                x = torch.baddbmm(tensors[start + 1].unsqueeze(1), x, weight)
            else:
                x = torch.bmm(x, weight)
            if start + step < len(tensors):
                x = activation(x)
        return x

    layout = Layout(tuple(shapes), tuple(shapes.values()))
    return Network(layout, forward, width=2 * sum(widths))
