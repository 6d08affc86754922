"""Matrices of many columns by their rows G, as far as a damped solve needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Rows(Protocol):
    """R rows of D entries for each of M models, in double precision.

    Attributes:
        size: D.
    """

    @property
    def size(self) -> int:
        """Number of columns."""

    def gram(self) -> Tensor:
        """Return GG', (M, R, R)."""

    def times(self, vectors_MD: Tensor) -> Tensor:
        """Return Gv, (M, R)."""

    def combined(self, factors_MR: Tensor) -> Tensor:
        """Return G'u, (M, D)."""


@dataclass(frozen=True)
class FullRows:
    """Rows that are written out.

    Attributes:
        rows: G.
    """

    rows: Tensor

    @property
    def size(self) -> int:
        """Number of columns, D."""
        return self.rows.shape[2]

    def gram(self) -> Tensor:
        """Return GG', (M, R, R)."""
        return self.rows @ self.rows.mT

    def times(self, vectors_MD: Tensor) -> Tensor:
        """Return Gv, (M, R)."""
        return (self.rows @ vectors_MD.unsqueeze(2)).squeeze(2)

    def combined(self, factors_MR: Tensor) -> Tensor:
        """Return G'u, (M, D)."""
        return (self.rows.mT @ factors_MR.unsqueeze(2)).squeeze(2)


@dataclass(frozen=True)
class OuterLayer:
    """The part of rows that belongs to a dense layer: outer products delta a'.

    Attributes:
        deltas: what goes back through the layer's outputs in each row.
        inputs: what goes in for each sample; a row's sample is the row over R / N.
        weight: place of the first weight in a row, (O, I) row by row.
        bias: place of the first bias; None without.
    """

    deltas: Tensor
    inputs: Tensor
    weight: int
    bias: int | None

    def _per_row(self, per_sample: Tensor, dim: int) -> Tensor:
        draws = self.deltas.shape[1] // self.inputs.shape[1]
        return per_sample if draws == 1 else per_sample.repeat_interleave(draws, dim)

    def gram(self) -> Tensor:
        """Return the layer's share of GG': (DD') * (AA' + 1 for a bias)."""
        inner_MNN = self.inputs @ self.inputs.mT
        if self.bias is not None:
            inner_MNN += 1
        inner_MRR = self._per_row(self._per_row(inner_MNN, 1), 2)
        return (self.deltas @ self.deltas.mT).mul_(inner_MRR)

    def times(self, vectors_MD: Tensor) -> Tensor:
        """Return the layer's share of Gv."""
        units, inputs = self.deltas.shape[2], self.inputs.shape[2]
        end = self.weight + units * inputs
        weight_MOI = vectors_MD[:, self.weight : end].view(-1, units, inputs)
        outputs_MNO = self.inputs @ weight_MOI.mT
        if self.bias is not None:
            outputs_MNO += vectors_MD[:, None, self.bias : self.bias + units]
        return (self._per_row(outputs_MNO, 1) * self.deltas).sum(2)

    def combine(self, factors_MR: Tensor, into_MD: Tensor) -> None:
        """Write the layer's share of G'u to its place."""
        units, inputs = self.deltas.shape[2], self.inputs.shape[2]
        scaled_MRO = self.deltas * factors_MR.unsqueeze(2)
        if self.bias is not None:
            into_MD[:, self.bias : self.bias + units] = scaled_MRO.sum(1)
        samples = self.inputs.shape[1]
        scaled_MNO = scaled_MRO.view(len(factors_MR), samples, -1, units).sum(2)
        end = self.weight + units * inputs
        into_MD[:, self.weight : end] = (scaled_MNO.mT @ self.inputs).flatten(1)


@dataclass(frozen=True)
class OuterRows:
    """Rows of a network of dense layers, never written out.

    The product of two rows is that of the deltas times that of the inputs, layer by
    layer, so that GG' takes R^2 (I + O) products in place of R^2 I O.

    Attributes:
        layers: all that have parameters, once each.
        size: D.
    """

    layers: Sequence[OuterLayer]
    size: int

    def gram(self) -> Tensor:
        """Return GG', (M, R, R)."""
        first, *others = self.layers
        total_MRR = first.gram()
        for layer in others:
            total_MRR += layer.gram()
        return total_MRR

    def times(self, vectors_MD: Tensor) -> Tensor:
        """Return Gv, (M, R)."""
        return torch.stack([layer.times(vectors_MD) for layer in self.layers]).sum(0)

    def combined(self, factors_MR: Tensor) -> Tensor:
        """Return G'u, (M, D)."""
        found_MD = factors_MR.new_empty(len(factors_MR), self.size)
        for layer in self.layers:
            layer.combine(factors_MR, found_MD)
        return found_MD
