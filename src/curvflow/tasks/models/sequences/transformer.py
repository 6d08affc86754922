"""Transformers."""

from __future__ import annotations

from curvflow.schemas.models.sequences.transformer import Transformer
from curvflow.tasks.networks.layers import ACTIVATIONS
from curvflow.tasks.networks.network import Network
from curvflow.tasks.networks.parts import Part, activation, chain, tokenwise
from curvflow.tasks.networks.parts.attention import attention_network
from curvflow.tasks.networks.parts.sequence import SequenceData


def build(spec: Transformer, data: SequenceData) -> Network:
    """Build blocks of an attention and two dense layers.

    Args:
        spec: the blocks, embeddings, positions and readout.
        data: the samples it is for.

    Returns:
        The network.

    Raises:
        InputError: the samples do not fit.

    Reference:
        Vaswani et al. (2017), arXiv:1706.03762; pre-norm as in Xiong et al. (2020),
        arXiv:2002.04745, with a norm after the last block.
    """
    hidden = spec.hidden or 4 * spec.width

    def dense(name: str) -> Part:
        return chain(
            tokenwise(f"{name}.dense1", hidden, bias=spec.bias),
            activation(ACTIVATIONS[spec.activation]),
            tokenwise(f"{name}.dense2", spec.width, bias=spec.bias),
        )

    return attention_network(spec, data, dense)
