"""Vision transformers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.models._base import Readout
from curvflow.schemas.models.vit import Vit
from curvflow.tasks.networks.layers import ACTIVATIONS
from curvflow.tasks.networks.network import ForwardPass, Network
from curvflow.tasks.networks.parts import (
    activation,
    chain,
    check_images,
    dense_part,
    dropout_part,
    network_of,
    residual,
    tokenwise,
)
from curvflow.tasks.networks.parts.attention import Heads, attention
from curvflow.tasks.networks.parts.part import BuiltPart, Part, Shape
from curvflow.tasks.networks.parts.sequence import (
    ends,
    layer_norm,
    positions,
    readout,
    tokens_at,
)


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


def build(spec: Vit, input_shape: Sequence[int], num_outputs: int) -> Network:
    """Build a vision transformer.

    Args:
        spec: patches, blocks, pooling, activation and dropout.
        input_shape: of one sample, (channels, height, width).
        num_outputs: C.

    Returns:
        The network. Its first layer is a dense one of the pixels of each patch, with a
        weight of shape (W, channels patch_size²).

    Raises:
        InputError: the samples are no images, or patches do not divide them.

    Reference:
        Dosovitskiy et al. (2021), arXiv:2010.11929, Eqs. (1) to (4), with a head of one
        dense layer; mean pooling: Zhai et al. (2022), arXiv:2106.04560.
    """
    check_images("vit", input_shape)
    end: Readout = "first" if spec.pooling == "cls" else "mean"
    return network_of(
        chain(
            patches(spec.patch_size),
            tokenwise("embedding", spec.width),
            *([first_token("token")] if spec.pooling == "cls" else []),
            positions("learned", "positions", None),
            dropout_part(spec.dropout),
            *_blocks(spec, ends(end)),
            layer_norm("norm", spec.eps),
            readout(end),
            dense_part("head", num_outputs),
        ),
        input_shape,
    )


def _blocks(spec: Vit, last: slice) -> Iterator[Part]:
    """Yield the blocks; the last one computes only tokens that are looked at."""
    heads = Heads(spec.heads, causal=False, drop=spec.dropout)
    for number in range(1, spec.depth + 1):
        name = f"block{number}"
        asking = last if number == spec.depth else slice(None)
        attend = attention(f"{name}.attention", heads, asking)
        yield _added(spec, f"{name}.norm1", attend, tokens_at(asking))
        yield _added(spec, f"{name}.norm2", _dense(spec, name), chain())


def _dense(spec: Vit, name: str) -> Part:
    return chain(
        tokenwise(f"{name}.dense1", spec.hidden),
        activation(ACTIVATIONS[spec.activation]),
        tokenwise(f"{name}.dense2", spec.width),
    )


def _added(spec: Vit, norm: str, body: Part, shortcut: Part) -> Part:
    drop = dropout_part(spec.dropout)
    return residual(chain(layer_norm(norm, spec.eps), body, drop), shortcut)
