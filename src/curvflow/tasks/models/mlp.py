"""Multi-layer perceptrons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import torch
from torch import Tensor
from torch.nn.functional import gelu

from curvflow.schemas.networks import Mlp
from curvflow.tasks.layers import dense_layers
from curvflow.tasks.networks import Network

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "gelu": gelu,
    "sigmoid": torch.sigmoid,
    "identity": lambda x: x,
}


def build(spec: Mlp, input_shape: Sequence[int], num_outputs: int) -> Network:
    """Build a multi-layer perceptron.

    Args:
        spec: widths, activation and bias.
        input_shape: of one sample; flattened.
        num_outputs: width of the last layer, C.

    Returns:
        The network.
    """
    widths = [prod(input_shape), *spec.hidden, num_outputs]
    return dense_layers(widths, _ACTIVATIONS[spec.activation], bias=spec.bias)
