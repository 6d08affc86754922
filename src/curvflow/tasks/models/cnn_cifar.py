"""The convolutional network of the regularisation study for CIFAR-10."""

from __future__ import annotations

from collections.abc import Sequence

from curvflow.schemas.models.cnn_cifar import CnnCifar
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


def build(spec: CnnCifar, input_shape: Sequence[int], num_outputs: int) -> Network:
    """Build two convolutions and dense layers, five unless said otherwise.

    Args:
        spec: widths, activation and dropout.
        input_shape: of one sample, (channels, height, width).
        num_outputs: C.

    Returns:
        The network; by default 4677872 parameters for 3x32x32 inputs and 10 outputs.

    Reference:
        Jarvis (2021), "Generalizing Regularization of Neural Networks to Correlated
        Parameter Spaces", chapter 4.
    """
    check_images("cnn_cifar", input_shape)
    act = activation(ACTIVATIONS[spec.activation])
    first, second = spec.channels
    dense = [
        chain(dense_part(f"dense{number}", units), act, dropout_part(spec.dropout))
        for number, units in enumerate(spec.hidden, start=1)
    ]
    return network_of(
        chain(
            chain(convolution("conv1", first, 7), act, pooling("max", 2)),
            chain(convolution("conv2", second, 2), act, flatten()),
            *dense,
            dense_part(f"dense{len(spec.hidden) + 1}", num_outputs),
        ),
        input_shape,
    )
