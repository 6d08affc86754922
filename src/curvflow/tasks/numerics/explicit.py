"""Matrices whose entries can be read, and what these tell without products."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from curvflow.tasks.numerics.kernels import KernelMatrix
from curvflow.tasks.numerics.operators import Dense, Operator
from curvflow.tasks.numerics.sparse import Sparse


class Explicit(Protocol):
    """A symmetric matrix known by its entries."""

    def columns(self, numbers: Tensor) -> Tensor:
        """Return the columns of these numbers, (D, k)."""

    def diagonal(self) -> Tensor:
        """Return the diagonal, (D,)."""

    def dense(self) -> Tensor:
        """Return the matrix, (D, D)."""


class _Entries:
    """A dense matrix, read by its entries."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix

    def columns(self, numbers: Tensor) -> Tensor:
        return self.matrix[:, numbers]

    def diagonal(self) -> Tensor:
        return self.matrix.diagonal()

    def dense(self) -> Tensor:
        return self.matrix


def explicit(operator: Operator) -> Explicit | None:
    """Return the entries of a matrix that has columns at hand, or None.

    Args:
        operator: any.
    """
    if isinstance(operator, Dense):
        return _Entries(operator.matrix)
    return operator if isinstance(operator, KernelMatrix) else None


def norm_bound(operator: Operator) -> float | None:
    """Return Gershgorin's bound, the largest sum of magnitudes of a row, or None.

    Args:
        operator: any; None if its entries cannot be read.
    """
    if isinstance(operator, Sparse):
        return operator.bound()
    if isinstance(operator, Dense):
        return float(operator.matrix.abs().sum(1).max())
    if isinstance(operator, KernelMatrix):
        sums = [float(rows.abs().sum(1).max()) for _, rows in operator.blocks()]
        return max(sums)
    return None
