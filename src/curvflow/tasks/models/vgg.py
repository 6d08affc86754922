"""VGG networks for small images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from curvflow.schemas.models.vgg import Vgg
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
    dropout_part,
    flatten,
    network_of,
    pooling,
)

# Convolutions in each of the five stages.
COUNTS = {
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}
CHANNELS = (64, 128, 256, 512, 512)


def build(spec: Vgg, input_shape: Sequence[int], num_outputs: int) -> Network:
    """Build stages of convolutions and dense layers behind them.

    Args:
        spec: the stages, whether they are normalised, and the dense layers.
        input_shape: of one sample, (channels, height, width).
        num_outputs: C.

    Returns:
        The network.

    Reference:
        Simonyan and Zisserman (2015), arXiv:1409.1556, table 1, columns A, B, D and E.
    """
    check_images("vgg", input_shape)
    return network_of(
        chain(*_stages(spec), flatten(), *_dense(spec, num_outputs)), input_shape
    )


def _stages(spec: Vgg) -> Iterator[Part]:
    counts = zip(CHANNELS, COUNTS[spec.depth], strict=True)
    published = tuple((channels,) * count for channels, count in counts)
    number = 0
    for stage in spec.stages or published:
        for channels in stage:
            number += 1
            yield convolution(
                f"conv{number}", max(1, round(spec.width * channels)), 3, padding=1
            )
            if spec.batch_norm:
                yield batch_norm(f"norm{number}")
            yield activation(ACTIVATIONS[spec.activation])
        yield pooling("max", 2)


def _dense(spec: Vgg, num_outputs: int) -> Iterator[Part]:
    for number, units in enumerate(spec.hidden, start=1):
        yield dropout_part(spec.dropout)
        yield dense_part(f"dense{number}", units)
        yield activation(ACTIVATIONS[spec.activation])
    yield dropout_part(spec.dropout)
    yield dense_part(f"dense{len(spec.hidden) + 1}", num_outputs)
