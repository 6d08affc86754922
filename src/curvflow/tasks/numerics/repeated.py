"""Operators that several models of a batch have in common."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from curvflow.tasks.numerics.operators import Operator


class Repeated:
    """A batched operator of few maps, each that of one model or more.

    All models of one map are multiplied by it at once: their columns side by side.
    """

    def __init__(self, operators: Sequence[Operator], which: Sequence[int]) -> None:
        """Take the maps, of equal shape, and for each model the number of its own."""
        self._operators, self._which = operators, list(which)
        rows, columns = operators[0].shape
        self.shape = (len(self._which), rows, columns)
        self.dtype, self.device = operators[0].dtype, operators[0].device

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with vectors (M, D) or columns (M, D, S)."""
        if columns.ndim == 2:
            return (self @ columns.unsqueeze(-1)).squeeze(-1)
        products = torch.empty_like(columns)
        for number, operator in enumerate(self._operators):
            own = [m for m, which in enumerate(self._which) if which == number]
            if own:
                side_by_side_DS = torch.cat([columns[m] for m in own], dim=1)
                product_DS = operator @ side_by_side_DS
                products[own] = torch.stack(product_DS.chunk(len(own), dim=1))
        return products

    def select(self, models: Tensor) -> Repeated:
        """Return the operator of some of the models, by their indices (m,)."""
        return Repeated(self._operators, [self._which[m] for m in models.tolist()])
