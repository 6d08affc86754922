"""Autoencoders."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from curvflow.errors import InputError
from curvflow.schemas.models.autoencoder import Autoencoder
from curvflow.tasks.networks.layers import ACTIVATIONS, dense_layers
from curvflow.tasks.networks.network import Network


def build(spec: Autoencoder, input_shape: Sequence[int], num_outputs: int) -> Network:
    """Build an encoder and its mirror image.

    Args:
        spec: widths of the encoder, activation and bias.
        input_shape: of one sample; flattened.
        num_outputs: must be as many as inputs.

    Returns:
        The network.

    Raises:
        InputError: the targets are no inputs.

    Reference:
        Hinton and Salakhutdinov (2006), doi:10.1126/science.1127647, who leave the code
        linear; without tied weights or pre-training.
    """
    inputs = prod(input_shape)
    if num_outputs != inputs:
        raise InputError(
            f"model: expected as many target values as inputs, {inputs}, for "
            f"autoencoder, got {num_outputs} outputs. Take data whose targets are "
            "their inputs, as rows."
        )
    return dense_layers(
        [inputs, *spec.hidden, *spec.hidden[-2::-1], inputs],
        ACTIVATIONS[spec.activation],
        bias=spec.bias,
        linear=[len(spec.hidden)] if spec.linear_code else [],
    )
