"""LeNet-5."""

from __future__ import annotations

from collections.abc import Sequence

from curvflow.schemas.models.lenet5 import Lenet5
from curvflow.tasks.networks.layers import ACTIVATIONS
from curvflow.tasks.networks.network import Network
from curvflow.tasks.networks.parts import (
    activation,
    chain,
    check_images,
    convolution,
    dense_part,
    dropout_part,
    flatten,
    network_of,
    pooling,
)


def build(spec: Lenet5, input_shape: Sequence[int], num_outputs: int) -> Network:
    """Build LeNet-5.

    Args:
        spec: padding, activation, pooling and dropout.
        input_shape: of one sample, (channels, height, width).
        num_outputs: C.

    Returns:
        The network.

    Reference:
        LeCun, Bottou, Bengio and Haffner (1998), doi:10.1109/5.726791, section II.B,
        with full connections between the feature maps, pooling without coefficients,
        and a dense last layer.
    """
    check_images("lenet5", input_shape)
    act = activation(ACTIVATIONS[spec.activation])
    pool, drop = pooling(spec.pooling, 2), dropout_part(spec.dropout)
    return network_of(
        chain(
            chain(convolution("conv1", 6, 5, padding=spec.padding), act, pool),
            chain(convolution("conv2", 16, 5), act, pool, flatten()),
            chain(dense_part("dense1", 120), act, drop),
            chain(dense_part("dense2", 84), act, drop),
            dense_part("dense3", num_outputs),
        ),
        input_shape,
    )
