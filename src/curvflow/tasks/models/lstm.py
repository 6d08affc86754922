"""Networks with long short-term memory."""

from __future__ import annotations

from collections.abc import Sequence

from curvflow.schemas.models.lstm import Lstm
from curvflow.tasks.networks.network import Network
from curvflow.tasks.networks.parts.recurrent import recurrent_network
from curvflow.tasks.networks.parts.sequence_network import SequenceData


def build(
    spec: Lstm,
    input_shape: Sequence[int],
    num_outputs: int,
    tokens: int | None = None,
    *,
    takes_integers: bool = False,
) -> Network:
    """Build recurrent layers and a dense layer.

    Args:
        spec: the layers, embeddings and readout.
        input_shape: of one sample, (T,) of integers or (T, F).
        num_outputs: C.
        tokens: labels of one sample, T, where outputs are (T, C); None for (C,).
        takes_integers: inputs are tokens.

    Returns:
        The network.

    Raises:
        InputError: the samples do not fit.

    Reference:
        Hochreiter and Schmidhuber (1997), doi:10.1162/neco.1997.9.8.1735.
    """
    data = SequenceData(input_shape, num_outputs, tokens, takes_integers)
    return recurrent_network(spec, data, "lstm")
