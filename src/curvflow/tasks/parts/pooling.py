"""Pooling for a batch of models."""

from __future__ import annotations

import math
from typing import Literal

from torch import Tensor
from torch.nn.functional import avg_pool2d, max_pool2d

from curvflow.errors import InputError
from curvflow.tasks.parts.channels import merged, parted
from curvflow.tasks.parts.part import Part, Placed, Shape
from curvflow.tasks.passage import Passage


def pooling(kind: Literal["avg", "max"], size: int | None) -> Part:
    """Make a pooling over windows that do not overlap.

    Args:
        kind: mean or largest of a window; where paths are counted, the sum of the
            powers that the mean's weights have, or the sum.
        size: side of a window, which leaves out what does not fill one; None for the
            whole image.

    Returns:
        The part, from samples (C, H, W) to (C, H', W'). It refuses images that are
        smaller than a window.

    Reference:
        Neyshabur, Salakhutdinov and Srebro (2015), arXiv:1506.02617, for path norms,
        which have one weight per edge: 1 / m of a mean of m. The sum in place of a
        maximum bounds it from above, and rescales with its channel.
    """

    def place(shape: Shape) -> Placed:
        channels, *sides = shape
        window = tuple(sides) if size is None else (size, size)
        result = (channels, *(s // w for s, w in zip(sides, window, strict=True)))
        if 0 in result:
            raise InputError(
                f"model: expected at least {window[0]}x{window[1]} pixels to be "
                f"pooled, got {sides[0]}x{sides[1]}. Take larger images, or a model "
                "that shrinks them less."
            )

        def apply(passage: Passage, x: Tensor) -> Tensor:
            return parted(_pool(passage, kind, window, merged(x)), len(x))

        return Placed(apply, result, kept=math.prod(result))

    return place


def _pool(
    passage: Passage, kind: Literal["avg", "max"], window: Shape, x: Tensor
) -> Tensor:
    if passage.power is not None:
        places = math.prod(window)
        weight = places**-passage.power if kind == "avg" else 1.0
        summed: Tensor = avg_pool2d(x, window) * (places * weight)
        return summed
    pooled: Tensor = (avg_pool2d if kind == "avg" else max_pool2d)(x, window)
    return pooled
