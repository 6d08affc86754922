"""Networks with long short-term memory."""

from __future__ import annotations

from curvflow.schemas.models.sequences.lstm import Lstm
from curvflow.tasks.networks.network import Network
from curvflow.tasks.networks.parts.recurrent import recurrent_network
from curvflow.tasks.networks.parts.sequence import SequenceData


def build(spec: Lstm, data: SequenceData) -> Network:
    """Build recurrent layers and a dense layer.

    Args:
        spec: the layers, embeddings and readout.
        data: the samples it is for.

    Returns:
        The network.

    Raises:
        InputError: the samples do not fit.

    Reference:
        Hochreiter and Schmidhuber (1997), doi:10.1162/neco.1997.9.8.1735.
    """
    return recurrent_network(spec, data, "lstm")
