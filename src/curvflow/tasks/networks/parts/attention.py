"""Attention between the tokens of a sample, and networks of residual blocks of it.

Letters of shapes, besides M models, N samples, T tokens: S tokens that ask, H heads, E
entries of a head, W of a token, B all heads of all samples of all models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.schemas.models._base import Readout
from curvflow.schemas.models.sequences.attention_only import Attention
from curvflow.tasks.networks.layers import dropout
from curvflow.tasks.networks.network import ForwardPass, Network
from curvflow.tasks.networks.parts.part import (
    BuiltPart,
    Part,
    Shape,
    chain,
    dropout_part,
    residual,
)
from curvflow.tasks.networks.parts.sequence import (
    EMBEDDING,
    SequenceData,
    angles,
    apply_tokenwise,
    ends,
    layer_norm,
    positions,
    sequence_network,
    token_embedding,
    tokens_at,
    tokenwise,
    unembedding,
)

PROJECTIONS = ("query", "key", "value", "out")


@dataclass(frozen=True)
class Heads:
    """Form of an attention.

    Attributes:
        count: number of heads, which divides the width.
        causal: a token sees none that come after it.
        rotary: queries and keys are turned by where they stand.
        bias: whether the four projections have one.
        drop: rate of dropout of the attention's weights.
    """

    count: int
    causal: bool
    rotary: bool = False
    bias: bool = True
    drop: float = 0.0


def attention(name: str, heads: Heads, asking: slice = slice(None)) -> Part:
    """Make a multi-head attention of a sequence to itself.

    Args:
        name: name of the layer.
        heads: their number and form.
        asking: tokens whose outputs are computed; keys and values are those of all.

    Returns:
        The part, from (T, W) to (S, W); weights of `query`, `key`, `value` and `out`
        have shape (W, W), rows of the first three go to the heads one after another.

    Reference:
        Vaswani et al. (2017), arXiv:1706.03762, section 3.2; rotary positions: Su et
        al. (2021), arXiv:2104.09864, section 3.4.2.
    """

    def build(shape: Shape) -> BuiltPart:
        length, width = shape
        tensors: dict[str, Shape] = {}
        for part in PROJECTIONS:
            tensors[f"{name}.{part}.weight"] = (width, width)
            if heads.bias:
                tensors[f"{name}.{part}.bias"] = (width,)
        attend = _Attention(name, heads, asking, length, width // heads.count)
        asked = len(range(length)[asking])
        return BuiltPart(
            attend,
            (asked, width),
            tensors,
            # Queries, keys, values, what heads return, and their weights.
            kept=2 * (length + asked) * width + heads.count * asked * length,
            has_paths=False,
        )

    return build


class _Attention:
    """Attention over a known number of tokens."""

    def __init__(
        self, name: str, heads: Heads, asking: slice, length: int, size: int
    ) -> None:
        self._name, self._heads, self._asking = name, heads, asking
        self._scale = size**-0.5
        self._mask_1ST: Tensor | None = None
        if heads.causal:
            later_TT = torch.ones(length, length, dtype=torch.bool).triu(1)
            mask_TT = torch.zeros(length, length).masked_fill(later_TT, -torch.inf)
            if mask_TT[asking].isinf().any():
                self._mask_1ST = mask_TT[asking].unsqueeze(0)
        self._turns: tuple[Tensor, Tensor] | None = None
        if heads.rotary:
            angles_TP = angles(length, size)
            self._turns = angles_TP.cos(), angles_TP.sin()

    def __call__(self, forward_pass: ForwardPass, x_MNTW: Tensor) -> Tensor:
        """Return outputs (M, N, S, W) of inputs (M or 1, N, T, W)."""
        q_BSE = self._turned(
            self._projected(forward_pass, "query", x_MNTW[:, :, self._asking]),
            self._asking,
        )
        k_BTE = self._turned(self._projected(forward_pass, "key", x_MNTW), slice(None))
        v_BTE = self._projected(forward_pass, "value", x_MNTW)
        weights_BST = self._scores(q_BSE, k_BTE).softmax(-1)
        each = (-1, x_MNTW.shape[1], self._heads.count)
        if self._heads.drop:
            weights_MNHST = torch.unflatten(weights_BST, 0, each)
            dropped_MNHST = dropout(forward_pass, self._heads.drop, weights_MNHST)
            weights_BST = dropped_MNHST.flatten(0, 2)
        y_MNHSE = torch.unflatten(torch.bmm(weights_BST, v_BTE), 0, each)
        y_MNSW = y_MNHSE.transpose(2, 3).flatten(3)
        return apply_tokenwise(forward_pass, f"{self._name}.out", y_MNSW)

    def _projected(
        self, forward_pass: ForwardPass, part: str, x_MNTW: Tensor
    ) -> Tensor:
        y_MNTW = apply_tokenwise(forward_pass, f"{self._name}.{part}", x_MNTW)
        y_MNTHE = torch.unflatten(y_MNTW, 3, (self._heads.count, -1))
        return y_MNTHE.transpose(2, 3).flatten(0, 2)

    def _scores(self, q_BSE: Tensor, k_BTE: Tensor) -> Tensor:
        if self._mask_1ST is None:
            return torch.bmm(q_BSE * self._scale, k_BTE.mT)
        mask_1ST = self._mask_1ST.to(q_BSE)
        return torch.baddbmm(mask_1ST, q_BSE, k_BTE.mT, alpha=self._scale)

    def _turned(self, x_BTE: Tensor, rows: slice) -> Tensor:
        """Turn each pair of entries by the angle of its place."""
        if self._turns is None:
            return x_BTE
        cos_TP, sin_TP = (table[rows].to(x_BTE) for table in self._turns)
        even_BTP, odd_BTP = x_BTE[..., 0::2], x_BTE[..., 1::2]
        turned = [
            even_BTP * cos_TP - odd_BTP * sin_TP,
            even_BTP * sin_TP + odd_BTP * cos_TP,
        ]
        return torch.stack(turned, dim=-1).flatten(-2)


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
