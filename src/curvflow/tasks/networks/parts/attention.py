"""Attention between the tokens of a sample, for a batch of models.

Letters of shapes, besides M models, N samples, T tokens: S tokens that ask, H heads, E
entries of a head, W of a token, B all heads of all samples of all models.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.tasks.networks.layers import dropout
from curvflow.tasks.networks.network import ForwardPass
from curvflow.tasks.networks.parts.part import BuiltPart, Part, Shape
from curvflow.tasks.networks.parts.sequence import angles, apply_tokenwise

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
