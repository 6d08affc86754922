"""Recurrent layers, token after token, for a batch of models.

Letters of shapes, besides M models, N samples and T tokens: H hidden units, G gates of
all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from curvflow.schemas.models._base import Readout
from curvflow.schemas.models.sequences.lstm import Recurrent
from curvflow.tasks.networks.layers import dense
from curvflow.tasks.networks.network import ForwardPass, Network
from curvflow.tasks.networks.parts.part import (
    BuiltPart,
    Part,
    Shape,
    chain,
    dropout_part,
)
from curvflow.tasks.networks.parts.sequence import (
    EMBEDDING,
    SequenceData,
    ends,
    sequence_network,
    token_embedding,
)

Cell = Literal["lstm", "gru"]

# Gates of each hidden unit, and numbers of each that backpropagation keeps a token.
GATES = {"lstm": 4, "gru": 3}
KEPT = {"lstm": 7, "gru": 6}


def recurrent(
    name: str,
    cell: Cell,
    hidden: int,
    *,
    bias: bool = True,
    asking: slice = slice(None),
) -> Part:
    """Make a recurrent layer that begins with a state of zeros.

    Args:
        name: name of the layer.
        cell: its form.
        hidden: units, H.
        bias: whether inputs and states each have one.
        asking: tokens whose outputs are returned.

    Returns:
        The part, from (T, in) to (S, H). Tensors are those of `torch.nn.LSTM` and
        `torch.nn.GRU`, with gates in the same order.

    Reference:
        Hochreiter and Schmidhuber (1997), doi:10.1162/neco.1997.9.8.1735, with the
        forget gates of Gers, Schmidhuber and Cummins (2000),
        doi:10.1162/089976600300015015; Cho et al. (2014), arXiv:1406.1078, with the
        reset gate behind the product, as in `torch.nn.GRU`.
    """
    outputs_of = _lstm if cell == "lstm" else _gru
    gates = GATES[cell] * hidden

    def apply(forward_pass: ForwardPass, x_MNTI: Tensor) -> Tensor:
        given_MXG = dense(
            forward_pass, name, x_MNTI.flatten(1, 2), "weight_ih", "bias_ih"
        )
        given_MNTG = torch.unflatten(given_MXG, 1, x_MNTI.shape[1:3])

        def from_state(h_MNH: Tensor) -> Tensor:
            return dense(forward_pass, name, h_MNH, "weight_hh", "bias_hh")

        # Unbound at once: its derivative is one stack, that of T slices T of zeros.
        states = outputs_of(given_MNTG.unbind(2), from_state, hidden)
        return torch.stack(states[asking], dim=2)

    def build(shape: Shape) -> BuiltPart:
        length, width = shape
        tensors: dict[str, Shape] = {
            f"{name}.weight_ih": (gates, width),
            f"{name}.weight_hh": (gates, hidden),
        }
        if bias:
            tensors |= {f"{name}.bias_ih": (gates,), f"{name}.bias_hh": (gates,)}
        return BuiltPart(
            apply,
            (len(range(length)[asking]), hidden),
            tensors,
            kept=KEPT[cell] * length * hidden,
            has_paths=False,
        )

    return build


def _lstm(
    given: Sequence[Tensor], from_state: Callable[[Tensor], Tensor], hidden: int
) -> list[Tensor]:
    """Return h of each token: c = f c + i g, h = o tanh(c)."""
    c_MNH = h_MNH = torch.zeros_like(given[0][..., :hidden])
    states = []
    for given_MNG in given:
        gates_MNG = given_MNG + from_state(h_MNH)
        i, f, g, o = gates_MNG.chunk(4, dim=-1)
        c_MNH = f.sigmoid() * c_MNH + i.sigmoid() * g.tanh()
        h_MNH = o.sigmoid() * c_MNH.tanh()
        states.append(h_MNH)
    return states


def _gru(
    given: Sequence[Tensor], from_state: Callable[[Tensor], Tensor], hidden: int
) -> list[Tensor]:
    """Return h of each token: n = tanh(W x + r (U h)), h = (1 - z) n + z h."""
    h_MNH = torch.zeros_like(given[0][..., :hidden])
    states = []
    for given_MNG in given:
        r, z, n = given_MNG.chunk(3, dim=-1)
        r_h, z_h, n_h = from_state(h_MNH).chunk(3, dim=-1)
        n_MNH = (n + (r + r_h).sigmoid() * n_h).tanh()
        h_MNH = torch.lerp(n_MNH, h_MNH, (z + z_h).sigmoid())
        states.append(h_MNH)
    return states


def recurrent_network(spec: Recurrent, data: SequenceData, cell: Cell) -> Network:
    """Build embeddings of tokens, recurrent layers, and a dense layer.

    Args:
        spec: the layers, embeddings and readout.
        data: its samples.
        cell: form of the layers.

    Returns:
        The network.

    Raises:
        InputError: the samples do not fit.
    """

    def middle(vocabulary: int | None, end: Readout) -> Part:
        parts = []
        if vocabulary is not None:
            width = spec.embedding or spec.hidden
            parts.append(token_embedding(EMBEDDING, vocabulary, width))
        for number in range(1, spec.layers + 1):
            asking = ends(end) if number == spec.layers else slice(None)
            name = f"layer{number}"
            parts.append(
                recurrent(name, cell, spec.hidden, bias=spec.bias, asking=asking)
            )
            if number < spec.layers:
                parts.append(dropout_part(spec.dropout))
        return chain(*parts)

    return sequence_network(spec, data, middle)
