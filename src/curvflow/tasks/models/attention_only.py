"""Transformers without dense layers between their attentions."""

from __future__ import annotations

from collections.abc import Sequence

from curvflow.schemas.models.attention_only import AttentionOnly
from curvflow.tasks.networks.network import Network
from curvflow.tasks.networks.parts.attention_network import attention_network
from curvflow.tasks.networks.parts.sequence_network import SequenceData


def build(
    spec: AttentionOnly,
    input_shape: Sequence[int],
    num_outputs: int,
    tokens: int | None = None,
    *,
    takes_integers: bool = False,
) -> Network:
    """Build blocks of attention alone.

    Args:
        spec: the blocks, embeddings, positions and readout.
        input_shape: of one sample, (T,) of integers or (T, F).
        num_outputs: C.
        tokens: labels of one sample, T, where outputs are (T, C); None for (C,).
        takes_integers: inputs are tokens.

    Returns:
        The network.

    Raises:
        InputError: the samples do not fit.

    Reference:
        Elhage et al. (2021), "A Mathematical Framework for Transformer Circuits".
    """
    data = SequenceData(input_shape, num_outputs, tokens, takes_integers)
    return attention_network(spec, data)
