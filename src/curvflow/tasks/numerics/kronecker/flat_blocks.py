"""Blocks by their eigenpairs as one row of numbers for each model, and back.

A row holds its own form: the number of blocks; of each how many groups, rows and
columns it has; the places of their parameters; and of each its eigenvectors, left and
right, and its eigenvalues.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.kronecker.blocks import BlockOperator
from curvflow.tasks.numerics.kronecker.forms import Eigenpairs


def flattened(blocks: Sequence[Eigenpairs]) -> Tensor:
    """Return the blocks of M models as rows, (M, S), in double precision.

    Args:
        blocks: that have no parameter in common.

    Returns:
        The rows, of one form.

    Examples:
        >>> from curvflow.tasks.numerics.kronecker.forms import diagonal_block
        >>> flattened([diagonal_block("w", torch.arange(1), torch.ones(1, 1))])
        tensor([[1., 1., 1., 1., 0., 1., 1., 1.]], dtype=torch.float64)
    """
    sizes = [tuple(block.values.shape[1:]) for block in blocks]
    columns = [block.columns.double().cpu() for block in blocks]
    counts = [len(blocks), *(number for size in sizes for number in size)]
    header = torch.cat([torch.tensor(counts, dtype=torch.float64), *columns])
    parts = [
        part.flatten(1).double()
        for block in blocks
        for part in (block.left, block.right, block.values)
    ]
    numbers = torch.cat(parts, dim=1)
    return torch.cat([header.to(numbers).expand(len(numbers), -1), numbers], dim=1)


def from_flat(rows: Tensor, size: int) -> BlockOperator:
    """Return the blocks of rows, (M, D, D).

    Args:
        rows: as `flattened` returns them, of blocks of the same parameters.
        size: parameters of a model, D.

    Returns:
        The operator.

    Raises:
        InputError: rows are of other blocks than the first, or of other parameters.
    """
    count = int(rows[0, 0])
    sizes = rows[0, 1 : 1 + 3 * count].long().view(count, 3).tolist()
    lengths = [math.prod(form) for form in sizes]
    start = 1 + 3 * count
    end = start + sum(lengths)
    if sum(lengths) != size or not (rows[:, :end] == rows[0, :end]).all():
        raise InputError(
            f"preconditioner: expected blocks of the same {size} parameters, got "
            "others. Take trainings of one model."
        )
    places = torch.split(rows[0, start:end].long(), lengths)
    blocks = []
    for (groups, height, width), columns in zip(sizes, places, strict=True):
        shapes = (
            (groups, height, height),
            (groups, width, width),
            (groups, height, width),
        )
        parts = []
        for shape in shapes:
            start, end = end, end + math.prod(shape)
            parts.append(rows[:, start:end].reshape(-1, *shape))
        blocks.append(Eigenpairs("", columns, *parts))
    return BlockOperator(blocks, size)


class BlockScaling:
    """P of M models by its blocks, as what divides steps."""

    def __init__(self, blocks: BlockOperator) -> None:
        """Take P, whose eigenvalues are above zero."""
        self._blocks = blocks

    def logdet(self) -> Tensor:
        """Return log det P, (M,)."""
        return self._blocks.logdet()

    def inverse(self, columns: Tensor) -> Tensor:
        """Return P^-1 times vectors (M, D) or columns (M, D, S)."""
        return self._blocks.scaled(columns, lambda block: 1 / block.values)

    def inverse_root(self, columns: Tensor) -> Tensor:
        """Return P^-1/2 times vectors (M, D) or columns (M, D, S)."""
        return self._blocks.scaled(columns, lambda block: block.values.rsqrt())

    def select(self, models: Tensor) -> Self:
        """Return that of some of the models, by their indices (m,)."""
        return type(self)(self._blocks.select(models))
