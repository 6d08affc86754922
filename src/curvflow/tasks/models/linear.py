"""Linear and softmax regression."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from curvflow.schemas.models.linear import Linear
from curvflow.tasks.networks.layers import dense_layers
from curvflow.tasks.networks.network import Network


def build(spec: Linear, input_shape: Sequence[int], num_outputs: int) -> Network:
    """Build one dense layer.

    Args:
        spec: whether it has a bias.
        input_shape: of one sample; flattened.
        num_outputs: C.

    Returns:
        The network.
    """
    widths = [prod(input_shape), num_outputs]
    return dense_layers(widths, lambda x: x, bias=spec.bias)
