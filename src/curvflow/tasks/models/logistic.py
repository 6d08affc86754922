"""Logistic regression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from torch import Tensor
from torch.nn.functional import pad

from curvflow.errors import InputError
from curvflow.schemas.models.logistic import Logistic
from curvflow.tasks.networks.layers import dense_layers
from curvflow.tasks.networks.network import ForwardPass, Network


def build(spec: Logistic, input_shape: Sequence[int], num_outputs: int) -> Network:
    """Build one dense layer for all classes but the last, whose output is 0.

    Args:
        spec: whether it has a bias.
        input_shape: of one sample; flattened.
        num_outputs: classes, C.

    Returns:
        The network.

    Raises:
        InputError: there is a single class.
    """
    if num_outputs < 2:
        raise InputError(
            f"model: expected two classes or more for logistic, got {num_outputs}. "
            "Take other data, or model linear."
        )
    widths = [prod(input_shape), num_outputs - 1]
    others = dense_layers(widths, lambda x: x, bias=spec.bias)

    def forward(forward_pass: ForwardPass, inputs: Tensor) -> Tensor:
        return pad(others.forward(forward_pass, inputs), (0, 1))

    return replace(others, forward=forward)
