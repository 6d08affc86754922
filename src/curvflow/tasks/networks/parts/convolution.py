"""Convolution and pooling for a batch of models."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, conv2d, max_pool2d

from curvflow.errors import InputError
from curvflow.tasks.networks.network import ForwardPass
from curvflow.tasks.networks.parts.part import BuiltPart, Part, Shape
from curvflow.tasks.numerics.kronecker.uses import Use, Windows


def fold_models(x: Tensor) -> Tensor:
    """Return (M, N, C, H, W) as (N, M C, H, W); the inverse of `unfold_models`."""
    return x.transpose(0, 1).flatten(1, 2)


def unfold_models(x: Tensor, models: int) -> Tensor:
    """Return (N, M C, H, W) as (M, N, C, H, W), a view."""
    return torch.unflatten(x, 1, (models, -1)).transpose(0, 1)


def convolution(
    name: str,
    out: int,
    kernel: int,
    *,
    stride: int = 1,
    padding: int = 0,
    bias: bool = True,
) -> Part:
    """Make a convolution of images.

    Args:
        name: name of the layer.
        out: number of output channels.
        kernel: side of the square kernel, pixels.
        stride: steps between windows, pixels.
        padding: zeros around the image, pixels.
        bias: add a bias to each output channel.

    Returns:
        The part, from samples (C, H, W) to (out, H', W'); the weight has shape (out, C,
        kernel, kernel). It refuses images that are smaller than the kernel.
    """

    def build(shape: Shape) -> BuiltPart:
        channels, *sides = shape
        room_sides = [side + 2 * padding - kernel for side in sides]
        if min(room_sides) < 0:
            raise InputError(
                f"model: expected at least {kernel - 2 * padding} pixels a side at "
                f"{name}, got {sides[0]}x{sides[1]}. Take larger images, or a model "
                "that shrinks them less."
            )
        result = (out, *(room // stride + 1 for room in room_sides))
        tensors: dict[str, Shape] = {f"{name}.weight": (out, channels, kernel, kernel)}
        if bias:
            tensors[f"{name}.bias"] = (out,)

        def apply(forward_pass: ForwardPass, x: Tensor) -> Tensor:
            return _convolve(forward_pass, name, x, stride=stride, padding=padding)

        return BuiltPart(apply, result, tensors, kept=math.prod(result))

    return build


def _convolve(
    forward_pass: ForwardPass, name: str, x: Tensor, *, stride: int, padding: int
) -> Tensor:
    weight = forward_pass.tensors[f"{name}.weight"]
    bias_MO = forward_pass.tensors.get(f"{name}.bias")
    models = len(weight)
    # Measured on a CPU, derivatives of 40 small networks: a loop over the models takes
    # 1.1 to 2.7 times as long as groups, products of unfolded windows 1.6 to 3.3.
    # Shared inputs need none: every model's filters see the same channels.
    y = conv2d(
        fold_models(x),
        weight.flatten(0, 1),
        None if bias_MO is None else bias_MO.flatten(),
        stride=stride,
        padding=padding,
        groups=len(x),
    )
    y = unfold_models(y, models)
    if forward_pass.uses is not None:
        sides = x.ndim - 3
        form = Windows((stride,) * sides, ((padding, padding),) * sides, (1,) * sides)
        added = None if bias_MO is None else f"{name}.bias"
        forward_pass.uses.append(Use(f"{name}.weight", added, x, (y,), form))
    return y


def pooling(kind: Literal["avg", "max"], size: int | None) -> Part:
    """Make a pooling over windows that do not overlap.

    Args:
        kind: mean or maximum of a window; where paths are counted, the sum weighted by
            the powers of the mean's weights, or the sum.
        size: side of a window, pixels; a last window that is not full is left out;
            None for the whole image.

    Returns:
        The part, from samples (C, H, W) to (C, H', W'). It refuses images that are
        smaller than a window.

    Reference:
        Neyshabur, Salakhutdinov and Srebro (2015), arXiv:1506.02617, for path norms,
        which have one weight per edge: 1 / m of a mean of m. The sum in place of a
        maximum bounds it from above, and rescales with its channel.
    """

    def build(shape: Shape) -> BuiltPart:
        channels, *sides = shape
        window = tuple(sides) if size is None else (size, size)
        result = (channels, *(s // w for s, w in zip(sides, window, strict=True)))
        if 0 in result:
            raise InputError(
                f"model: expected at least {window[0]}x{window[1]} pixels to be "
                f"pooled, got {sides[0]}x{sides[1]}. Take larger images, or a model "
                "that shrinks them less."
            )

        def apply(forward_pass: ForwardPass, x: Tensor) -> Tensor:
            return unfold_models(
                _pool(forward_pass, kind, window, fold_models(x)), len(x)
            )

        return BuiltPart(apply, result, kept=math.prod(result))

    return build


def _pool(
    forward_pass: ForwardPass, kind: Literal["avg", "max"], window: Shape, x: Tensor
) -> Tensor:
    if forward_pass.power is not None:
        places = math.prod(window)
        weight = places**-forward_pass.power if kind == "avg" else 1.0
        summed: Tensor = avg_pool2d(x, window) * (places * weight)
        return summed
    pooled: Tensor = (avg_pool2d if kind == "avg" else max_pool2d)(x, window)
    return pooled
