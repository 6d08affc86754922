"""A mean over batches of a module as an operator, and its parts by parameter."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Self

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.derivatives.batches import Batch, num_samples
from curvflow.tasks.numerics.derivatives.differentiation_modes import Written
from curvflow.tasks.numerics.derivatives.precision import differentiable
from curvflow.tasks.numerics.derivatives.subjects import Subject
from curvflow.tasks.numerics.operators.adapters import Single
from curvflow.tasks.numerics.operators.algebra import PrincipalBlock, block_index
from curvflow.tasks.numerics.operators.base import BatchedOperator

# From a batch, the number of its first sample, and the columns that will be multiplied,
# to the product of the batch: of its mean loss, or of the sum where `is_summed`.
Prepare = Callable[[Batch, int, Tensor], Written]


# Columns multiplied at once on a CPU. Measured: beyond a core's cache, wider products
# take longer by the column.
CACHED_BYTES = 1 << 21


def columns_at_once(columns_DS: Tensor) -> int:
    """Return how many columns like these are best multiplied at once."""
    if columns_DS.device.type != "cpu":
        return columns_DS.shape[1]
    return max(1, CACHED_BYTES // (columns_DS.element_size() * len(columns_DS)))


def in_parts(product: Written) -> Written:
    """Return a product that takes as many columns at once as are best."""

    def parts(columns: Tensor, into: Tensor | None = None) -> Tensor:
        most = columns_at_once(columns)
        if into is None and columns.shape[1] <= most:
            return product(columns)
        # Each vector lies whole in memory.
        rows = columns.new_empty(columns.shape[::-1]) if into is None else into.mT
        pieces = torch.split(rows, most), torch.split(columns, most, 1)
        for few, part in zip(*pieces, strict=True):
            product(part, few.mT)
        return rows.mT

    return parts


class OverBatches:
    """A mean over batches, weighted by their sizes, as an operator of one model."""

    def __init__(self, of: Subject, prepare: Prepare) -> None:
        size = len(of.weights)
        self.shape = (1, size, size)
        self.dtype, self.device = of.weights.dtype, of.weights.device
        self._subject, self._prepare = of, prepare
        self._kept: Written | None = None
        self._divisor = 1.0

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with vectors (1, D) or columns (1, D, S)."""
        if columns.ndim == 2:
            return (self @ columns.unsqueeze(-1)).squeeze(-1)
        with differentiable():
            return self._product(columns[0]).unsqueeze(0)

    def multiply_into(self, columns: Tensor, into: Tensor) -> None:
        """Write the products with columns (1, D, S) into memory like them."""
        with differentiable():
            self._product(columns[0], into[0])

    def _product(self, columns_DS: Tensor, into: Tensor | None = None) -> Tensor:
        of = self._subject
        if of.has_one_batch:
            if self._kept is None:
                (batch,) = of.batches()
                self._kept = self._prepare(batch, 0, columns_DS)
                self._divisor = of.size_of(batch) / of.factor_of(batch)
            product_DS, count = self._kept(columns_DS, into), self._divisor
            if count == 1:
                return product_DS
            # Without memory of its own a product may be a part of what is kept.
            return (
                product_DS / self._divisor
                if into is None
                else product_DS.div_(self._divisor)
            )
        total_DS = torch.empty_like(columns_DS) if into is None else into
        total_DS.zero_()
        weight, first = 0.0, 0
        for batch in of.batches():
            product = self._prepare(batch, first, columns_DS)
            total_DS.add_(product(columns_DS), alpha=of.factor_of(batch))
            weight += of.size_of(batch)
            first += num_samples(batch)
        return total_DS.div_(weight)

    def select(self, models: Tensor) -> OverBatches:
        """Return the operator itself, of the one model there is."""
        return self


class Curvature(Single):
    """A symmetric operator (D, D) over the parameters of a module.

    Attributes:
        sizes: entries of each parameter by name, in the order of the dimension D.
    """

    def __init__(self, batched: BatchedOperator, sizes: dict[str, int]) -> None:
        super().__init__(batched)
        self.sizes = sizes

    def block(self, *patterns: str) -> Self:
        """Return the diagonal block of some parameters.

        Args:
            patterns: names, or patterns such as `0.*`.

        Returns:
            The operator, of the size of these parameters.

        Raises:
            InputError: no parameter has such a name.
        """
        chosen = [
            number
            for number, name in enumerate(self.sizes)
            if any(fnmatchcase(name, pattern) for pattern in patterns)
        ]
        if not chosen:
            raise InputError(
                f"block: expected some of {', '.join(self.sizes)}, got "
                f"{', '.join(patterns)}. Name parameters, or a pattern such as 0.*."
            )
        names = list(self.sizes)
        index = block_index(list(self.sizes.values()), chosen)
        sizes = {names[number]: self.sizes[names[number]] for number in chosen}
        block = self.like(PrincipalBlock(self.batched, index))
        block.sizes, block.shape = sizes, block.batched.shape[1:]
        return block
