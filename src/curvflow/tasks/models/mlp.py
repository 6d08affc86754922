"""Multi-layer perceptrons."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from curvflow.schemas.models.mlp import Mlp
from curvflow.tasks.networks.layers import ACTIVATIONS, dense_layers
from curvflow.tasks.networks.network import Network


def build(spec: Mlp, input_shape: Sequence[int], num_outputs: int) -> Network:
    """Build a multi-layer perceptron.

    Args:
        spec: widths, activation, bias and dropout.
        input_shape: of one sample; flattened.
        num_outputs: width of the last layer, C.

    Returns:
        The network.
    """
    widths = [prod(input_shape), *spec.hidden, num_outputs]
    return dense_layers(
        widths,
        ACTIVATIONS[spec.activation],
        bias=spec.bias,
        drop=spec.dropout,
        linear=spec.linear_layers,
    )
