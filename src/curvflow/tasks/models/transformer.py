"""Transformers."""

from __future__ import annotations

from collections.abc import Sequence

from curvflow.schemas.models.transformer import Transformer
from curvflow.tasks.networks.layers import ACTIVATIONS
from curvflow.tasks.networks.network import Network
from curvflow.tasks.networks.parts import Part, activation, chain, tokenwise
from curvflow.tasks.networks.parts.attention_network import attention_network
from curvflow.tasks.networks.parts.sequence_network import SequenceData


def build(
    spec: Transformer,
    input_shape: Sequence[int],
    num_outputs: int,
    tokens: int | None = None,
    *,
    takes_integers: bool = False,
) -> Network:
    """Build blocks of an attention and two dense layers.

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

    data = SequenceData(input_shape, num_outputs, tokens, takes_integers)
    return attention_network(spec, data, dense)
