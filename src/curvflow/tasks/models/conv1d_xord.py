"""The convolutional network for distributed exclusive or."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.models.conv1d_xord import Conv1dXord
from curvflow.tasks.networks.layers import ACTIVATIONS
from curvflow.tasks.networks.network import ForwardPass, Network
from curvflow.tasks.networks.parts import (
    BuiltPart,
    Part,
    activation,
    chain,
    dense_part,
    flatten,
    network_of,
)


def build(spec: Conv1dXord, input_shape: Sequence[int], num_outputs: int) -> Network:
    """Build filters over pairs, an activation and a dense layer.

    Args:
        spec: the filters, and whether each is a separate tensor.
        input_shape: of one sample; flattened, and read pair by pair.
        num_outputs: C.

    Returns:
        The network; the dense layer sees all pairs of the first filter, then those of
        the next.

    Raises:
        InputError: the inputs of a sample are no pairs.
    """
    if prod(input_shape) % 2:
        raise InputError(
            "model: expected an even number of inputs for conv1d_xord, got inputs of "
            f"shape {tuple(input_shape)}. Take data.xord."
        )
    return network_of(
        chain(
            _filters(spec),
            activation(ACTIVATIONS[spec.activation]),
            flatten(),
            dense_part("dense", num_outputs),
        ),
        input_shape,
    )


def _filters(spec: Conv1dXord) -> Part:
    """Make filters of two places that step by two, from (2 P,) to (filters, P)."""
    if spec.separate_filters:
        names = [f"filter{number}" for number in range(1, spec.filters + 1)]
    else:
        names = ["filters"]
    each = spec.filters // len(names)

    def apply(forward_pass: ForwardPass, inputs: Tensor) -> Tensor:
        weight_MFK, bias_MF = (
            torch.cat([forward_pass.tensors[f"{name}.{part}"] for name in names], dim=1)
            for part in ("weight", "bias")
        )
        pairs = inputs.reshape(*inputs.shape[:2], -1, 2)
        pairs = pairs.expand(len(weight_MFK), -1, -1, -1)
        found_MXF = torch.baddbmm(
            bias_MF.unsqueeze(1), pairs.flatten(1, 2), weight_MFK.flatten(2).mT
        )
        return found_MXF.reshape(*pairs.shape[:3], spec.filters).mT

    def build(shape: tuple[int, ...]) -> BuiltPart:
        tensors: dict[str, tuple[int, ...]] = {}
        for name in names:
            tensors[f"{name}.weight"] = (each, 1, 2)
            tensors[f"{name}.bias"] = (each,)
        out = (spec.filters, prod(shape) // 2)
        return BuiltPart(apply, out, tensors, kept=prod(out))

    return build
