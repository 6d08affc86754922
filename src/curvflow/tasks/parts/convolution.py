"""Convolutions for a batch of models."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn.functional import conv2d

from curvflow.errors import InputError
from curvflow.tasks.parts.channels import merged, parted
from curvflow.tasks.parts.part import Part, Placed, Shape
from curvflow.tasks.passage import Passage


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
        name: of the layer.
        out: number of its channels.
        kernel: side of its square kernel.
        stride: steps between places, pixels.
        padding: zeros around the image, pixels.
        bias: whether it has one.

    Returns:
        The part, from samples (C, H, W) to (out, H', W'); the weight has shape (out, C,
        kernel, kernel). It refuses images that are smaller than the kernel.
    """

    def place(shape: Shape) -> Placed:
        channels, *sides = shape
        left = [side + 2 * padding - kernel for side in sides]
        if min(left) < 0:
            raise InputError(
                f"model: expected at least {kernel - 2 * padding} pixels a side at "
                f"{name}, got {sides[0]}x{sides[1]}. Take larger images, or a model "
                "that shrinks them less."
            )
        result = (out, *(one // stride + 1 for one in left))
        tensors: dict[str, Shape] = {f"{name}.weight": (out, channels, kernel, kernel)}
        if bias:
            tensors[f"{name}.bias"] = (out,)

        def apply(passage: Passage, x: Tensor) -> Tensor:
            return _convolve(passage, name, x, stride=stride, padding=padding)

        return Placed(apply, result, tensors, kept=math.prod(result))

    return place


def _convolve(
    passage: Passage, name: str, x: Tensor, *, stride: int, padding: int
) -> Tensor:
    weight = passage.tensors[f"{name}.weight"]
    bias_MO = passage.tensors.get(f"{name}.bias")
    models = len(weight)
    # Measured on a CPU, derivatives of 40 small networks: a loop over the models takes
    # 1.1 to 2.7 times as long as groups, products of unfolded windows 1.6 to 3.3.
    # Shared inputs need none: every model's filters see the same channels.
    y = conv2d(
        merged(x),
        weight.flatten(0, 1),
        None if bias_MO is None else bias_MO.flatten(),
        stride=stride,
        padding=padding,
        groups=len(x),
    )
    return parted(y, models)
