"""Residual networks for small images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor
from torch.nn.functional import pad

from curvflow.schemas.models.resnet import Resnet
from curvflow.tasks.networks.layers import ACTIVATIONS
from curvflow.tasks.networks.network import ForwardPass, Network
from curvflow.tasks.networks.parts import (
    BuiltPart,
    Part,
    activation,
    batch_norm,
    chain,
    check_images,
    convolution,
    dense_part,
    flatten,
    group_norm,
    network_of,
    pooling,
    residual,
)


def build(spec: Resnet, input_shape: Sequence[int], num_outputs: int) -> Network:
    """Build stages of basic residual blocks.

    Args:
        spec: stages, norm, shortcuts and activation.
        input_shape: of one sample, (channels, height, width).
        num_outputs: C.

    Returns:
        The network. Convolutions have a bias only where nothing is normalised.

    Reference:
        He, Zhang, Ren and Sun (2016), arXiv:1512.03385, figure 5 left, with the first
        layer and the stages of section 4.2.
    """
    check_images("resnet", input_shape)
    act = activation(ACTIVATIONS[spec.activation])
    return network_of(
        chain(
            chain(*_convolved(spec, "", "", spec.widths[0], 3), act),
            *_blocks(spec, act),
            pooling("avg", None),
            flatten(),
            dense_part("dense", num_outputs),
        ),
        input_shape,
    )


def _blocks(spec: Resnet, act: Part) -> Iterator[Part]:
    before = spec.widths[0]
    stages = zip(spec.widths, spec.blocks, strict=True)
    for stage, (width, count) in enumerate(stages, start=1):
        for block in range(1, count + 1):
            stride = 2 if stage > 1 and block == 1 else 1
            name = f"stage{stage}.block{block}."
            body = chain(
                *_convolved(spec, name, "1", width, 3, stride),
                act,
                *_convolved(spec, name, "2", width, 3),
            )
            is_changed = stride > 1 or before != width
            shortcut = _shortcut(spec, name, width, stride) if is_changed else chain()
            yield chain(residual(body, shortcut), act)
            before = width


def _shortcut(spec: Resnet, name: str, width: int, stride: int) -> Part:
    if spec.shortcut == "padding":
        return _padded(width, stride)
    return chain(*_convolved(spec, f"{name}shortcut.", "", width, 1, stride))


def _padded(width: int, stride: int) -> Part:
    """Make a part that takes places by strides, and adds channels of zeros."""

    def build(shape: tuple[int, ...]) -> BuiltPart:
        channels, *sides = shape
        after = (width, *((side + stride - 1) // stride for side in sides))

        def apply(_: ForwardPass, x: Tensor) -> Tensor:
            kept = x[..., ::stride, ::stride]
            return pad(kept, (0, 0, 0, 0, 0, width - channels))

        return BuiltPart(apply, after)

    return build


def _convolved(
    spec: Resnet, place: str, number: str, width: int, kernel: int, stride: int = 1
) -> Iterator[Part]:
    """Yield a convolution and its norm."""
    yield convolution(
        f"{place}conv{number}",
        width,
        kernel,
        stride=stride,
        padding=kernel // 2,
        bias=spec.norm == "none",
    )
    if spec.norm == "batch":
        yield batch_norm(f"{place}norm{number}")
    if spec.norm == "group":
        yield group_norm(f"{place}norm{number}", spec.num_groups)
