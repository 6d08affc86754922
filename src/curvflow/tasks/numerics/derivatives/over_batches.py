"""A mean over batches of a module as an operator, and its parts by parameter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from curvflow.errors import InputError
from curvflow.tasks.numerics.derivatives.batches import (
    TRIAL_SAMPLES,
    Batch,
    num_samples,
)
from curvflow.tasks.numerics.derivatives.differentiation_modes import Written
from curvflow.tasks.numerics.derivatives.precision import differentiable
from curvflow.tasks.numerics.derivatives.subjects import Subject, named_failures
from curvflow.tasks.numerics.operators.adapters import Single
from curvflow.tasks.numerics.operators.algebra import PrincipalBlock, block_index
from curvflow.tasks.numerics.operators.base import (
    BatchedOperator,
    Repeated,
    no_sample_mean,
)
from curvflow.tasks.numerics.streams import stream

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


# Samples in pairs that a mean is tried on, and what it may be off relative to them.
PAIRS, ROUNDING = 16, 1e-5


class OverBatches:
    """A mean over batches, weighted by their sizes, as an operator of one model."""

    def __init__(
        self, of: Subject, prepare: Prepare, once: Prepare | None = None
    ) -> None:
        """Take the module and its products.

        Args:
            of: the module, its loss and data.
            prepare: products of a batch, for many of them.
            once: products of some samples, for one of them; None where samples cannot
                be taken apart.
        """
        size = len(of.weights)
        self.shape = (1, size, size)
        self.dtype, self.device = of.weights.dtype, of.weights.device
        self._subject, self._prepare = of, prepare
        self._kept: Written | None = None
        self._divisor = 1.0
        self._once, self._is_mean = once, False

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with vectors (1, D) or columns (1, D, S)."""
        if columns.ndim == 2:
            return (self @ columns.unsqueeze(-1)).squeeze(-1)
        with differentiable(), named_failures(self._subject):
            return self._product(columns[0]).unsqueeze(0)

    def multiply_into(self, columns: Tensor, into: Tensor) -> None:
        """Write the products with columns (1, D, S) into memory like them."""
        with differentiable(), named_failures(self._subject):
            self._product(columns[0], into[0])

    def _product(self, columns_DS: Tensor, into: Tensor | None = None) -> Tensor:
        of = self._subject
        if of.has_one_batch:
            if self._kept is None:
                (batch,) = of.counted()
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
        for batch in of.counted():
            product = self._prepare(batch, first, columns_DS)
            total_DS.add_(product(columns_DS), alpha=of.factor_of(batch))
            weight += of.size_of(batch)
            first += num_samples(batch)
        return total_DS.div_(weight)

    @property
    def num_samples(self) -> int:
        """Samples of all batches.

        Raises:
            InputError: samples cannot be taken apart: batches are not kept, the loss is
                no mean over samples, or labels are drawn for all of them.
        """
        return sum(num_samples(batch) for batch in self._held())

    def of_samples(self, models: Tensor, rows: Tensor) -> Repeated:
        """Return operators (R, D, D): the means over some of the samples.

        Args:
            models: zeros, (R,).
            rows: samples that each is the mean over, (R, B).
        """
        held = self._held()
        assert self._once is not None  # or there are no such batches
        parts = []
        for of_one in rows:
            of = replace(self._subject, data=[taken(held, of_one)])
            parts.append(Single(OverBatches(of, self._once)))
        return Repeated(parts, range(len(parts)))

    def _held(self) -> list[Batch]:
        """Return the batches, whose samples can be taken apart."""
        of = self._subject
        if self._once is None:
            raise InputError(no_sample_mean("labels drawn for all of them"))
        if not isinstance(of.data, list) or "size_of" in of.settings:
            raise InputError(
                "data: expected a list of batches of samples, to take others of them, "
                f"got {type(of.data).__name__}, or size_of. Pass a list, or take "
                "probes_per data."
            )
        if not self._is_mean:
            _check_alike(of.data)
            _check_separable(of)
            self._is_mean = True
        return of.data

    def select(self, models: Tensor) -> OverBatches:
        """Return the operator itself, of the one model there is."""
        return self


def taken(batches: Sequence[Batch], rows: Tensor) -> Batch:
    """Return some samples of several batches, numbered through, as one batch.

    Args:
        batches: of samples alike.
        rows: numbers of samples, on the CPU.
    """
    parts, first = [], 0
    for batch in batches:
        last = first + num_samples(batch)
        inside = rows[(rows >= first) & (rows < last)] - first
        if len(inside):
            parts.append(tree_map(partial(_picked, rows=inside), batch))
        first = last
    return parts[0] if len(parts) == 1 else tree_map(_joined, *parts)


def _picked(leaf: Any, rows: Tensor) -> Any:
    return leaf[rows.to(leaf.device)] if isinstance(leaf, Tensor) else leaf


def _joined(*leaves: Any) -> Any:
    return torch.cat(leaves) if isinstance(leaves[0], Tensor) else leaves[0]


def _check_alike(batches: Sequence[Batch]) -> None:
    """Refuse batches whose samples do not fit into one batch."""
    forms = set()
    for batch in batches:
        leaves, structure = tree_flatten(batch)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        count = num_samples(batch)
        if any(leaf.ndim == 0 or len(leaf) != count for leaf in tensors):
            raise InputError(
                "data: expected tensors of one length in a batch, to take some of its "
                f"samples, got {', '.join(str(tuple(t.shape)) for t in tensors)}. "
                "Take probes_per data."
            )
        of_samples = tuple((t.shape[1:], t.dtype, t.device) for t in tensors)
        forms.add((str(structure), of_samples))
    if len(forms) > 1:
        raise InputError(
            "data: expected samples of one shape, type and device in all batches, to "
            f"take some of each, got {len(forms)} different ones. Take probes_per data."
        )


def _check_separable(of: Subject) -> None:
    """Compare the mean loss of random samples with that of parts of them."""
    count = sum(num_samples(batch) for batch in of.data)
    generator = stream(0, "separable")
    rows = torch.randperm(count, generator=generator)[: 2 * TRIAL_SAMPLES]

    def mean_of(values: Tensor) -> float:
        batch = tree_map(of.moved, taken(of.data, values))
        with torch.no_grad(), differentiable():
            return float(of.mean_loss(of.outputs(of.weights, batch), batch))

    if len(rows) < 4:
        raise InputError(
            f"data: expected four samples or more, to take some of them, got "
            f"{len(rows)}. Take probes_per data."
        )
    # Pairs, so that weights of classes show, and a batch norm has a variance; parts of
    # unequal length, so that sums are told from means.
    parts = rows.tensor_split([2, *range(4, min(len(rows) - 2, PAIRS), 2)])
    means = [mean_of(part) for part in parts]
    mean = sum(len(p) * m for p, m in zip(parts, means, strict=True)) / len(rows)
    whole, scale = mean_of(rows), max(map(abs, means))
    rounding = max(ROUNDING, 100 * torch.finfo(of.weights.dtype).eps)
    if not abs(mean - whole) <= rounding * scale:
        raise InputError(
            f"loss: expected a mean over samples that do not meet, got {whole:.6g} of "
            f"{len(rows)} samples and {mean:.6g} of their parts. Take probes_per data."
        )


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

        Examples:
            >>> import curvflow, torch
            >>> net = torch.nn.Linear(2, 1).double()
            >>> x = torch.eye(2).double()
            >>> H = curvflow.hessian(net, "sse", (x, x[:, :1]))
            >>> H.shape, H.block("bias").shape
            ((3, 3), (1, 1))
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
