"""Networks of sequences: embeddings, residual blocks of attention, and a readout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from curvflow.errors import InputError
from curvflow.schemas.models._base import SequenceModel
from curvflow.schemas.models.attention_only import Attention
from curvflow.tasks.networks.network import Network
from curvflow.tasks.networks.parts.attention import Heads, attention
from curvflow.tasks.networks.parts.part import (
    Part,
    chain,
    dense_part,
    dropout_part,
    network_of,
    residual,
)
from curvflow.tasks.networks.parts.sequence import (
    ends,
    layer_norm,
    positions,
    readout,
    token_embedding,
    tokens_at,
    tokenwise,
    unembedding,
)

# From the name of a block to what follows its attention.
Dense = Callable[[str], Part]

EMBEDDING = "embedding"


def attention_network(
    spec: Attention,
    input_shape: Sequence[int],
    num_outputs: int,
    tokens: int | None,
    *,
    takes_integers: bool,
    dense: Dense | None = None,
) -> Network:
    """Build embeddings, blocks of attention, and a head.

    Args:
        spec: the blocks, embeddings, positions and readout.
        input_shape: of one sample, (T,) of integers or (T, F).
        num_outputs: C.
        tokens: labels of one sample, T, where outputs are (T, C); None for (C,).
        takes_integers: inputs are tokens.
        dense: what follows the attention of a block; None for nothing.

    Returns:
        The network.

    Raises:
        InputError: the samples do not fit.
    """
    vocabulary = vocabulary_of(
        spec, input_shape, num_outputs, tokens, takes_integers=takes_integers
    )
    if spec.tied and vocabulary != num_outputs:
        got = "vectors as inputs" if vocabulary is None else f"{vocabulary} tokens"
        raise InputError(
            f"model: expected as many tokens as outputs, {num_outputs}, with tied, got "
            f"{got}. Set tied false, or num_classes of the data."
        )
    end = spec.readout_for(tokens)
    head = (
        unembedding(EMBEDDING, num_outputs)
        if spec.tied
        else output_layer(
            "head", num_outputs, bias=spec.bias, is_tokenwise=end == "tokens"
        )
    )
    last_norm = [_norm(spec, "norm")] if spec.norm == "pre" else []
    network = network_of(
        chain(
            embedding(vocabulary, spec.width, bias=spec.bias),
            *_placed(spec),
            dropout_part(spec.dropout),
            *_blocks(spec, ends(end), dense),
            *last_norm,
            readout(end),
            head,
        ),
        input_shape,
    )
    return replace(network, vocabulary=vocabulary)


def vocabulary_of(
    spec: SequenceModel,
    input_shape: Sequence[int],
    num_outputs: int,
    tokens: int | None,
    *,
    takes_integers: bool,
) -> int | None:
    """Return the number of tokens that inputs may name; None where they are vectors.

    Args:
        spec: which may name it.
        input_shape: of one sample.
        num_outputs: C.
        tokens: labels of one sample; None for one target.
        takes_integers: inputs are tokens.

    Raises:
        InputError: the samples do not fit the model, or the number is not known.
    """
    if wrong := spec.misfit(tuple(input_shape), tokens):
        raise InputError(f"model: {wrong[0]}. {wrong[1]}")
    if takes_integers != (len(input_shape) == 1):
        got = "integers" if takes_integers else "real numbers"
        raise InputError(
            f"model: expected integers of shape (tokens,) or real numbers of shape "
            f"(tokens, features) for {spec.kind}, got {got} of shape "
            f"{tuple(input_shape)}. Give tokens as integers of more than one byte."
        )
    if not takes_integers:
        if spec.vocabulary is not None:
            raise InputError(
                "model: vocabulary cannot be combined with inputs that are vectors. "
                "Remove it."
            )
        return None
    if spec.vocabulary is None and tokens is None:
        raise InputError(
            "model: expected a vocabulary for tokens with one target a sample, got "
            "none. Set vocabulary to the number of different tokens."
        )
    return spec.vocabulary or num_outputs


def embedding(vocabulary: int | None, width: int, *, bias: bool) -> Part:
    """Make the first layer: a table of tokens, or a dense layer of vectors.

    Args:
        vocabulary: number of tokens; None for vectors.
        width: entries of what it returns.
        bias: whether the dense layer has one.

    Returns:
        The part, from (T,) or (T, F) to (T, width).
    """
    if vocabulary is None:
        return tokenwise(EMBEDDING, width, bias=bias)
    return token_embedding(EMBEDDING, vocabulary, width)


def output_layer(name: str, outputs: int, *, bias: bool, is_tokenwise: bool) -> Part:
    """Make the last layer.

    Args:
        name: name of the layer.
        outputs: C.
        bias: whether it has one.
        is_tokenwise: whether each token has outputs.

    Returns:
        The part, from (W,) to (C,), or from (T, W) to (T, C).
    """
    layer = tokenwise if is_tokenwise else dense_part
    return layer(name, outputs, bias=bias)


def _placed(spec: Attention) -> Iterator[Part]:
    if spec.positions in ("learned", "sinusoidal"):
        yield positions(spec.positions, "positions", spec.context)


def _blocks(spec: Attention, last: slice, dense: Dense | None) -> Iterator[Part]:
    """Yield the blocks; the last one computes only tokens that are looked at."""
    for number in range(1, spec.layers + 1):
        name = f"block{number}"
        asking = last if number == spec.layers else slice(None)
        heads = Heads(
            spec.heads,
            spec.causal,
            rotary=spec.positions == "rotary",
            bias=spec.bias,
            drop=spec.dropout,
        )
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
