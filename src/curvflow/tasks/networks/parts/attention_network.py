"""Networks of residual blocks of attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from curvflow.schemas.models._base import Readout
from curvflow.schemas.models.attention_only import Attention
from curvflow.tasks.networks.network import Network
from curvflow.tasks.networks.parts.attention import Heads, attention
from curvflow.tasks.networks.parts.part import Part, chain, dropout_part, residual
from curvflow.tasks.networks.parts.sequence import (
    ends,
    layer_norm,
    positions,
    token_embedding,
    tokens_at,
    tokenwise,
    unembedding,
)
from curvflow.tasks.networks.parts.sequence_network import (
    EMBEDDING,
    SequenceData,
    sequence_network,
)

# From the name of a block to what follows its attention.
Dense = Callable[[str], Part]


def attention_network(
    spec: Attention, data: SequenceData, dense: Dense | None = None
) -> Network:
    """Build embeddings, blocks of attention, and a head.

    Args:
        spec: the blocks, embeddings, positions and readout.
        data: its samples.
        dense: what follows the attention of a block; None for nothing.

    Returns:
        The network.

    Raises:
        InputError: the samples do not fit.
    """

    def middle(vocabulary: int | None, end: Readout) -> Part:
        return chain(
            _embedding(spec, vocabulary),
            dropout_part(spec.dropout),
            *_blocks(spec, ends(end), dense),
            *([_norm(spec, "norm")] if spec.norm == "pre" else []),
        )

    head = unembedding(EMBEDDING, data.num_outputs) if spec.tied else None
    return sequence_network(spec, data, middle, head)


def _embedding(spec: Attention, vocabulary: int | None) -> Part:
    if vocabulary is None:
        first = tokenwise(EMBEDDING, spec.width, bias=spec.bias)
    else:
        first = token_embedding(EMBEDDING, vocabulary, spec.width)
    if spec.positions in ("learned", "sinusoidal"):
        return chain(first, positions(spec.positions, "positions", spec.context))
    return first


def _blocks(spec: Attention, last: slice, dense: Dense | None) -> Iterator[Part]:
    """Yield the blocks; the last one computes only tokens that are looked at."""
    heads = Heads(
        spec.heads,
        spec.causal,
        rotary=spec.positions == "rotary",
        bias=spec.bias,
        drop=spec.dropout,
    )
    for number in range(1, spec.layers + 1):
        name = f"block{number}"
        asking = last if number == spec.layers else slice(None)
        attend = attention(f"{name}.attention", heads, asking)
        yield _added(spec, f"{name}.norm1", attend, tokens_at(asking))
        if dense is not None:
            yield _added(spec, f"{name}.norm2", dense(name), chain())


def _added(spec: Attention, norm: str, body: Part, shortcut: Part) -> Part:
    body = chain(body, dropout_part(spec.dropout))
    if spec.norm == "pre":
        return residual(chain(_norm(spec, norm), body), shortcut)
    if spec.norm == "post":
        return chain(residual(body, shortcut), _norm(spec, norm))
    return residual(body, shortcut)


def _norm(spec: Attention, name: str) -> Part:
    return layer_norm(name, spec.eps, bias=spec.bias)
