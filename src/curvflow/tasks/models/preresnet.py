"""Residual networks with pre-activation for small images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from curvflow.schemas.models.preresnet import Preresnet
from curvflow.tasks.networks.layers import ACTIVATIONS
from curvflow.tasks.networks.network import Network
from curvflow.tasks.networks.parts import (
    Part,
    activation,
    batch_norm,
    chain,
    check_images,
    convolution,
    dense_part,
    flatten,
    network_of,
    pooling,
    residual,
)

CHANNELS = (16, 32, 64)


def build(spec: Preresnet, input_shape: Sequence[int], num_outputs: int) -> Network:
    """Build three stages of residual blocks of two convolutions.

    Args:
        spec: depth, width, activation, and whether there is a batch norm.
        input_shape: of one sample, (channels, height, width).
        num_outputs: C.

    Returns:
        The network. Convolutions have a bias only where nothing is normalised. Where
        a block changes the shape, a 1x1 convolution of its inputs is added to it.

    Reference:
        He, Zhang, Ren and Sun (2016), arXiv:1603.05027, figure 4(e); stages as in He et
        al. (2016), arXiv:1512.03385, section 4.2, but for the 1x1 convolutions.
    """
    check_images("preresnet", input_shape)
    widths = [max(1, round(spec.width * channels)) for channels in CHANNELS]
    return network_of(
        chain(
            _convolution(spec, "conv", widths[0], 3),
            *_blocks(spec, widths),
            _activated(spec, "norm"),
            pooling("avg", None),
            flatten(),
            dense_part("dense", num_outputs),
        ),
        input_shape,
    )


def _blocks(spec: Preresnet, widths: Sequence[int]) -> Iterator[Part]:
    before = widths[0]
    for stage, width in enumerate(widths, start=1):
        for block in range(1, (spec.depth - 2) // 6 + 1):
            stride = 2 if stage > 1 and block == 1 else 1
            name = f"stage{stage}.block{block}"
            body = chain(
                _activated(spec, f"{name}.norm1"),
                _convolution(spec, f"{name}.conv1", width, 3, stride),
                _activated(spec, f"{name}.norm2"),
                _convolution(spec, f"{name}.conv2", width, 3),
            )
            is_changed = stride > 1 or before != width
            shortcut = _convolution(spec, f"{name}.shortcut", width, 1, stride)
            yield residual(body, shortcut if is_changed else chain())
            before = width


def _activated(spec: Preresnet, name: str) -> Part:
    act = activation(ACTIVATIONS[spec.activation])
    return chain(batch_norm(name), act) if spec.batch_norm else act


def _convolution(
    spec: Preresnet, name: str, width: int, kernel: int, stride: int = 1
) -> Part:
    return convolution(
        name,
        width,
        kernel,
        stride=stride,
        padding=kernel // 2,
        bias=not spec.batch_norm,
    )
