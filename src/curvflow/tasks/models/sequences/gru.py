"""Networks with gated recurrent units."""

from __future__ import annotations

from curvflow.schemas.models.sequences.gru import Gru
from curvflow.tasks.networks.network import Network
from curvflow.tasks.networks.parts.recurrent import recurrent_network
from curvflow.tasks.networks.parts.sequence import SequenceData


def build(spec: Gru, data: SequenceData) -> Network:
    """Build recurrent layers and a dense layer.

    Args:
        spec: the layers, embeddings and readout.
        data: the samples it is for.

    Returns:
        The network.

    Raises:
        InputError: the samples do not fit.

    Reference:
        Cho et al. (2014), arXiv:1406.1078.
    """
    return recurrent_network(spec, data, "gru")
