"""Embeddings, positions, norms and readouts of sequences, and networks of these.

A sample is a row of T tokens, (T,), or of T vectors, (T, W).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from curvflow.errors import InputError
from curvflow.schemas.models._base import Readout, SequenceModel
from curvflow.tasks.networks.layers import dense, note_scaling
from curvflow.tasks.networks.network import ForwardPass, Network
from curvflow.tasks.networks.parts.part import (
    BuiltPart,
    Part,
    Shape,
    chain,
    dense_part,
    network_of,
)
from curvflow.tasks.numerics.kronecker.uses import Lookup, Use

# Base of the wavelengths of sines, Vaswani et al. (2017), section 3.5.
WAVELENGTHS = 10_000.0


def token_embedding(name: str, vocabulary: int, width: int) -> Part:
    """Make a table of a vector for each token.

    Args:
        name: name of the layer.
        vocabulary: number of tokens, V.
        width: entries of a vector, W.

    Returns:
        The part, from tokens (T,) to vectors (T, W); the weight has shape (V, W).
    """

    def apply(forward_pass: ForwardPass, tokens_MNT: Tensor) -> Tensor:
        table_MVW = forward_pass.tensors[f"{name}.weight"]
        # One table of all models. Measured on a CPU, products with the Hessian: by
        # `gather` they take a tenth longer, by one-hot rows up to twice as long.
        starts_M = torch.arange(len(table_MVW), device=tokens_MNT.device) * vocabulary
        rows_MNT = tokens_MNT + starts_M[:, None, None]
        y_MNTW = F.embedding(rows_MNT, table_MVW.flatten(0, 1))
        if forward_pass.uses is not None:
            use = Use(f"{name}.weight", None, tokens_MNT, (y_MNTW,), Lookup())
            forward_pass.uses.append(use)
        return y_MNTW

    def build(shape: Shape) -> BuiltPart:
        out = (*shape, width)
        weight = {f"{name}.weight": (vocabulary, width)}
        return BuiltPart(apply, out, weight, kept=math.prod(out), has_paths=False)

    return build


def tokenwise(name: str, out: int, *, bias: bool = True) -> Part:
    """Make a dense layer that each token goes through by itself.

    Args:
        name: name of the layer.
        out: number of units.
        bias: add a bias to each unit.

    Returns:
        The part, from (T, in) to (T, out); the weight has shape (out, in).
    """

    def build(shape: Shape) -> BuiltPart:
        length, width = shape
        tensors: dict[str, Shape] = {f"{name}.weight": (out, width)}
        if bias:
            tensors[f"{name}.bias"] = (out,)
        return BuiltPart(
            lambda p, x: apply_tokenwise(p, name, x),
            (length, out),
            tensors,
            kept=length * out,
        )

    return build


def apply_tokenwise(forward_pass: ForwardPass, name: str, x_MNTI: Tensor) -> Tensor:
    """Apply a dense layer to each token, from (M or 1, N, T, in) to (M, N, T, out)."""
    y_MXO = dense(forward_pass, name, x_MNTI.flatten(1, 2))
    return torch.unflatten(y_MXO, 1, x_MNTI.shape[1:3])


def unembedding(name: str, vocabulary: int) -> Part:
    """Make a head of a table of embeddings: the product with each token's vector.

    Args:
        name: name of the embedding, whose weight (V, W) is used once more.
        vocabulary: number of tokens, V.

    Returns:
        The part, from (W,) or (T, W) to (V,) or (T, V), without parameters.
    """

    def build(shape: Shape) -> BuiltPart:
        *tokens, _ = shape

        def apply(forward_pass: ForwardPass, x: Tensor) -> Tensor:
            rows = dense(forward_pass, name, x.reshape(len(x), -1, x.shape[-1]))
            return torch.unflatten(rows, 1, (-1, *tokens))

        out = (*tokens, vocabulary)
        return BuiltPart(apply, out, kept=math.prod(out), has_paths=False)

    return build


def positions(
    kind: Literal["learned", "sinusoidal"], name: str, length: int | None
) -> Part:
    """Add a vector to each token for where it stands.

    Args:
        kind: parameters, or sines and cosines.
        name: name of the layer.
        length: number of learned vectors; None for as many as there are tokens.

    Returns:
        The part; the weight of learned positions has shape (length, W).

    Reference:
        Vaswani et al. (2017), arXiv:1706.03762, section 3.5.
    """

    def build(shape: Shape) -> BuiltPart:
        count, width = shape

        def learned(forward_pass: ForwardPass, x_MNTW: Tensor) -> Tensor:
            places_MTW = forward_pass.tensors[f"{name}.weight"][:, :count]
            return x_MNTW + places_MTW.unsqueeze(1)

        if kind == "learned":
            weight = {f"{name}.weight": (length or count, width)}
            return BuiltPart(learned, shape, weight, kept=count * width)
        sines_TW = _sines(count, width)
        return BuiltPart(
            lambda _, x: x + sines_TW.to(x), shape, kept=count * width, has_paths=False
        )

    return build


def angles(count: int, width: int) -> Tensor:
    """Return the angle of each pair of entries at each place, (T, pairs)."""
    places_T = torch.arange(count, dtype=torch.float64)
    evens_P = torch.arange(0, width, 2, dtype=torch.float64)
    return places_T[:, None] * WAVELENGTHS ** (-evens_P / width)


def _sines(count: int, width: int) -> Tensor:
    """Return sines at even entries and cosines at odd ones, (T, W)."""
    angles_TP = angles(count, width)
    both = torch.stack([angles_TP.sin(), angles_TP.cos()], dim=-1)
    return both.flatten(1)[:, :width]  # an odd width has a sine more than cosines


def layer_norm(name: str, eps: float, *, bias: bool = True) -> Part:
    """Make a layer normalisation of the last dimension.

    Args:
        name: name of the layer.
        eps: added to variances.
        bias: whether there is a shift.

    Returns:
        The part; parameters `scale` and `shift`, each (W,).

    Reference:
        Ba, Kiros and Hinton (2016), arXiv:1607.06450, as in `torch.nn.LayerNorm`.
    """

    def build(shape: Shape) -> BuiltPart:
        tensors = {f"{name}.scale": shape[-1:]}
        if bias:
            tensors[f"{name}.shift"] = shape[-1:]
        return BuiltPart(
            lambda p, x: _normalised(p, name, x, eps),
            shape,
            tensors,
            kept=math.prod(shape),
            has_paths=False,
        )

    return build


def _normalised(
    forward_pass: ForwardPass, name: str, x_MNTW: Tensor, eps: float
) -> Tensor:
    scale_M11W = forward_pass.tensors[f"{name}.scale"][:, None, None]
    shift_MW = forward_pass.tensors.get(f"{name}.shift")
    x_MNTW = F.layer_norm(x_MNTW, x_MNTW.shape[-1:], eps=eps)
    if shift_MW is None:
        y_MNTW = x_MNTW * scale_M11W
    else:
        y_MNTW = torch.addcmul(shift_MW[:, None, None], x_MNTW, scale_M11W)
    note_scaling(forward_pass, name, x_MNTW, y_MNTW, channel=3)
    return y_MNTW


def readout(how: Readout) -> Part:
    """Take what a sequence is judged by: a token, their mean, or each of them.

    Args:
        how: `first`, `last`, `mean`, or `tokens` for all.

    Returns:
        The part, from (T, W) to (W,), or to (T, W).
    """
    if how == "tokens":
        return lambda shape: BuiltPart(lambda _, x: x, shape)

    def apply(forward_pass: ForwardPass, x_MNTW: Tensor) -> Tensor:
        return x_MNTW.mean(2) if how == "mean" else x_MNTW[:, :, ends(how)].squeeze(2)

    return lambda shape: BuiltPart(apply, shape[-1:])


def ends(how: Readout) -> slice:
    """Return the tokens that a readout looks at, so that others need not be computed.

    Args:
        how: of the readout.
    """
    return {"first": slice(0, 1), "last": slice(-1, None)}.get(how, slice(None))


def tokens_at(rows: slice) -> Part:
    """Take some of the tokens.

    Args:
        rows: which.

    Returns:
        The part, from (T, W) to (S, W).
    """

    def build(shape: Shape) -> BuiltPart:
        length, width = shape
        out = (len(range(length)[rows]), width)
        return BuiltPart(lambda _, x: x[:, :, rows], out)

    return build


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
