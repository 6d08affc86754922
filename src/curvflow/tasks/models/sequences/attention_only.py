"""Transformers without dense layers between their attentions."""

from __future__ import annotations

from curvflow.schemas.models.sequences.attention_only import AttentionOnly
from curvflow.tasks.networks.network import Network
from curvflow.tasks.networks.parts.attention import attention_network
from curvflow.tasks.networks.parts.sequence import SequenceData


def build(spec: AttentionOnly, data: SequenceData) -> Network:
    """Build blocks of attention alone.

    Args:
        spec: the blocks, embeddings, positions and readout.
        data: the samples it is for.

    Returns:
        The network.

    Raises:
        InputError: the samples do not fit.

    Reference:
        Elhage et al. (2021), "A Mathematical Framework for Transformer Circuits".
    """
    return attention_network(spec, data)
