"""Networks of sequences: what they begin and end with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from curvflow.errors import InputError
from curvflow.schemas.models._base import Readout, SequenceModel
from curvflow.tasks.networks.network import Network
from curvflow.tasks.networks.parts.part import Part, chain, dense_part, network_of
from curvflow.tasks.networks.parts.sequence import readout, tokenwise

EMBEDDING = "embedding"


@dataclass(frozen=True)
class SequenceData:
    """Samples that a network of sequences is built for.

    Attributes:
        input_shape: of one sample, (T,) of integers or (T, F).
        num_outputs: C.
        tokens: labels of one sample, T, where outputs are (T, C); None for (C,).
        takes_integers: inputs are tokens.
    """

    input_shape: Sequence[int]
    num_outputs: int
    tokens: int | None = None
    takes_integers: bool = False


def sequence_network(
    spec: SequenceModel,
    data: SequenceData,
    middle: Callable[[int | None, Readout], Part],
    head: Part | None = None,
) -> Network:
    """Build a network of sequences.

    Args:
        spec: the model.
        data: its samples.
        middle: from the number of tokens, None where inputs are vectors, and the
            readout to the part between inputs and readout.
        head: from the vectors read to outputs; None for a dense layer.

    Returns:
        The network.

    Raises:
        InputError: the samples do not fit the model, or the number of tokens is not
            known.
    """
    vocabulary = _vocabulary(spec, data)
    end = spec.readout_for(data.tokens)
    if head is None:
        layer = tokenwise if end == "tokens" else dense_part
        head = layer("head", data.num_outputs, bias=spec.bias)
    parts = middle(vocabulary, end), readout(end), head
    network = network_of(chain(*parts), data.input_shape)
    return replace(network, vocabulary=vocabulary)


def _vocabulary(spec: SequenceModel, data: SequenceData) -> int | None:
    """Return the number of tokens that inputs may name; None where they are vectors.

    Args:
        spec: the model, which may say it.
        data: its samples.

    Returns:
        The number of tokens, by default that of the labels of tokens.

    Raises:
        InputError: the samples do not fit the model, or the number is not known.
    """
    shape = tuple(data.input_shape)
    if wrong := next(spec.misfits(shape, data.tokens, data.num_outputs), None):
        raise InputError(f"model: {wrong[0]}. {wrong[1]}")
    if data.takes_integers != (len(shape) == 1):
        got = "integers" if data.takes_integers else "real numbers"
        raise InputError(
            f"model: expected integers of shape (tokens,) or real numbers of shape "
            f"(tokens, features) for {spec.kind}, got {got} of shape {shape}. Give "
            "tokens as integers of more than one byte."
        )
    return spec.vocabulary or data.num_outputs if data.takes_integers else None
