"""Layers and activations for a batch of models, by batched products."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import gelu

from curvflow.tasks.networks.network import ForwardPass, Layout, Network

Activation = Callable[[Tensor], Tensor]


def dense(forward_pass: ForwardPass, name: str, x_MNI: Tensor) -> Tensor:
    """Apply a dense layer: weight (out, in), and bias (out,) if it has one.

    Args:
        forward_pass: tensors of the network.
        name: name of the layer.
        x_MNI: inputs of the layer; M may be 1 where models share them.

    Returns:
        Outputs of the layer, (M, N, out).
    """
    x_MNI = x_MNI.expand(len(forward_pass.tensors[f"{name}.weight"]), -1, -1)
    y_MNO = affine(forward_pass, name, x_MNI)
    if forward_pass.dense_io is not None:
        forward_pass.dense_io.append((name, x_MNI, y_MNO))
    return y_MNO


def affine(
    forward_pass: ForwardPass,
    name: str,
    x_MNI: Tensor,
    weight: str = "weight",
    bias: str = "bias",
) -> Tensor:
    """Multiply rows by a weight (out, in), and add a bias (out,) if there is one.

    It is not recorded among the dense layers, so that a layer may be applied to several
    rows of a sample.

    Args:
        forward_pass: tensors of the network.
        name: name of the layer.
        x_MNI: rows; M may be 1 where models share them.
        weight: name of the weight in the layer.
        bias: name of the bias in the layer.

    Returns:
        The rows, (M, N, out).
    """
    weight_MIO = forward_pass.tensors[f"{name}.{weight}"].mT
    bias_MO = forward_pass.tensors.get(f"{name}.{bias}")
    x_MNI = x_MNI.expand(len(weight_MIO), -1, -1)
    if bias_MO is None:
        return torch.bmm(x_MNI, weight_MIO)
    return torch.baddbmm(bias_MO.unsqueeze(1), x_MNI, weight_MIO)


def activate(forward_pass: ForwardPass, activation: Activation, x: Tensor) -> Tensor:
    """Apply an activation, unless paths are counted."""
    return x if forward_pass.counts_paths else activation(x)


def dropout(forward_pass: ForwardPass, rate: float, x: Tensor) -> Tensor:
    """Zero each entry with probability `rate` in training, and rescale the others.

    Args:
        forward_pass: source of random numbers for each model.
        rate: probability, in [0, 1).
        x: shape (M, N, ...).

    Returns:
        The same shape; x itself when not in training or without a rate.
    """
    if forward_pass.draw is None or rate == 0:
        return x
    return x * (forward_pass.draw(tuple(x.shape[1:])) >= rate) / (1 - rate)


def dense_layers(
    widths: Sequence[int],
    activation: Activation,
    *,
    bias: bool,
    drop: float = 0.0,
    linear: Sequence[int] = (),
) -> Network:
    """Build dense layers with an activation between them.

    Args:
        widths: from the inputs, flattened, to the outputs.
        activation: applied after every layer but the last.
        bias: whether layers have one.
        drop: rate of dropout after each activation.
        linear: numbers of layers, from 1, that have no activation either.

    Returns:
        The network; weights have shape (out, in).
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for number, (before, after) in enumerate(pairwise(widths), start=1):
        shapes[f"layer{number}.weight"] = (after, before)
        if bias:
            shapes[f"layer{number}.bias"] = (after,)
    last = len(widths) - 1

    def forward(forward_pass: ForwardPass, inputs: Tensor) -> Tensor:
        x = inputs.flatten(2)
        for number in range(1, last + 1):
            x = dense(forward_pass, f"layer{number}", x)
            if number < last:
                if number not in linear:
                    x = activate(forward_pass, activation, x)
                x = dropout(forward_pass, drop, x)
        return x

    layout = Layout(tuple(shapes), tuple(shapes.values()))
    return Network(layout, forward, width=2 * sum(widths))


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "gelu": gelu,
    "sigmoid": torch.sigmoid,
    "identity": lambda x: x,
}
