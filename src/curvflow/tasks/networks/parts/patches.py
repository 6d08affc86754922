"""Patches of images as the tokens of a sequence, for a batch of models."""

from __future__ import annotations

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.networks.network import ForwardPass
from curvflow.tasks.networks.parts.part import BuiltPart, Part, Shape


def patches(side: int) -> Part:
    """Cut images into squares that do not overlap.

    A dense layer of each is the convolution whose kernel and stride are the square.

    Args:
        side: of a square, pixels.

    Returns:
        The part, from images (C, H, W) to rows (T, C side²) of the squares, row by row
        of the image; each holds its pixels channel by channel. It refuses images whose
        sides are no multiples of the square's.
    """

    def build(shape: Shape) -> BuiltPart:
        channels, height, width = shape
        if height % side or width % side:
            raise InputError(
                f"model: expected images whose sides are multiples of {side} pixels, "
                f"got {height}x{width}. Take another patch_size, or crop the images."
            )
        down, across = height // side, width // side

        def apply(_: ForwardPass, x: Tensor) -> Tensor:
            rows = torch.unflatten(torch.unflatten(x, 4, (across, side)), 3, (down, -1))
            # (M, N, C, down, side, across, side) to the squares first.
            return rows.permute(0, 1, 3, 5, 2, 4, 6).flatten(4).flatten(2, 3)

        return BuiltPart(apply, (down * across, channels * side * side))

    return build


def first_token(name: str) -> Part:
    """Put a learned vector before those of a sequence.

    Args:
        name: name of the layer.

    Returns:
        The part, from (T, W) to (T + 1, W); the weight has shape (W,).
    """

    def apply(forward_pass: ForwardPass, x_MNTW: Tensor) -> Tensor:
        token_MW = forward_pass.tensors[f"{name}.weight"]
        models, samples = len(token_MW), x_MNTW.shape[1]
        first_MN1W = token_MW[:, None, None].expand(-1, samples, -1, -1)
        return torch.cat([first_MN1W, x_MNTW.expand(models, -1, -1, -1)], dim=2)

    def build(shape: Shape) -> BuiltPart:
        length, width = shape
        return BuiltPart(
            apply,
            (length + 1, width),
            {f"{name}.weight": (width,)},
            kept=(length + 1) * width,
            has_paths=False,
        )

    return build
