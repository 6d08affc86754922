"""Sparse, kernel and explicit symmetric matrices as operators."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from curvflow.tasks.numerics.operators.base import Dense, Operator, scipy_operator
from curvflow.tasks.numerics.operators.graphs import GraphOperator

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator


class Sparse:
    """A symmetric operator given by its compressed rows.

    Attributes:
        matrix: in PyTorch's CSR form, (D, D).
    """

    def __init__(self, indptr: Tensor, indices: Tensor, values: Tensor) -> None:
        """Take the compressed rows.

        Args:
            indptr: where each row begins, (D + 1,), int64.
            indices: column of each entry, int64.
            values: the entries.
        """
        size = len(indptr) - 1
        with warnings.catch_warnings():
            # PyTorch says of CSR, once per process, that it may still change.
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
            self.matrix = torch.sparse_csr_tensor(
                indptr, indices, values, (size, size), check_invariants=True
            )
        self.shape = (size, size)
        self.dtype, self.device = values.dtype, values.device

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the product with a vector (D,) or columns (D, S)."""
        return self.matrix @ columns

    def adjoint(self) -> Sparse:
        """Return the transposed operator, which is the same."""
        return self

    def to_scipy(self) -> LinearOperator:
        """Return the same map for SciPy's solvers."""
        return scipy_operator(self)

    def dense(self) -> Tensor:
        """Return the matrix, (D, D)."""
        return self.matrix.to_dense()

    def diagonal(self) -> Tensor:
        """Return the diagonal, (D,)."""
        rows = torch.repeat_interleave(self.matrix.crow_indices().diff())
        on = rows == self.matrix.col_indices()
        diagonal = self.matrix.values().new_zeros(self.shape[0])
        return diagonal.index_add(0, rows[on], self.matrix.values()[on])

    def bound(self) -> float:
        """Return Gershgorin's bound of the magnitude of its eigenvalues."""
        return float(self.row_sums().max())

    def row_sums(self) -> Tensor:
        """Return the sum of the magnitudes of each row, (D,)."""
        rows = torch.repeat_interleave(self.matrix.crow_indices().diff())
        sums = self.matrix.values().new_zeros(self.shape[0])
        return sums.index_add(0, rows, self.matrix.values().abs())


# Bytes of the entries that are held at once.
BLOCK_BYTES = 1 << 26


def _squared_exponential(squares: Tensor) -> Tensor:
    return squares.mul_(-0.5).exp_()


def _exponential(squares: Tensor) -> Tensor:
    return squares.sqrt_().neg_().exp_()


def _matern32(squares: Tensor) -> Tensor:
    scaled = squares.sqrt_().mul_(math.sqrt(3))
    return (1 + scaled) * torch.exp(-scaled)


def _matern52(squares: Tensor) -> Tensor:
    scaled = squares.sqrt_().mul_(math.sqrt(5))
    return (1 + scaled + scaled.square() / 3) * torch.exp(-scaled)


# From squared distances, in units of the length scale, which they may overwrite.
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "squared_exponential": _squared_exponential,
    "exponential": _exponential,
    "matern32": _matern32,
    "matern52": _matern52,
}


@dataclass(frozen=True)
class KernelMatrix:
    """K_ij = k(|x_i - x_j| / l) + noise [i = j], a block of rows at a time.

    Attributes:
        points: the points x, (D, d).
        kernel: name of k, one of `FUNCTIONS`; each has k(0) = 1.
        length_scale: l.
        noise: added to the diagonal.
    """

    points: Tensor
    kernel: str
    length_scale: float
    noise: float

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.points), len(self.points)

    @property
    def dtype(self) -> torch.dtype:
        """Of vectors and products."""
        return self.points.dtype

    @property
    def device(self) -> torch.device:
        """Of vectors and products."""
        return self.points.device

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the product with a vector (D,) or columns (D, S)."""
        return torch.cat([rows @ columns for _, rows in self.blocks()])

    def adjoint(self) -> KernelMatrix:
        """Return the transposed operator, which is the same."""
        return self

    def to_scipy(self) -> LinearOperator:
        """Return the same map for SciPy's solvers."""
        return scipy_operator(self)

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield the rows (b, D) a block at a time, with their numbers."""
        size = len(self.points)
        count = max(1, BLOCK_BYTES // (8 * size))
        for start in range(0, size, count):
            chosen = slice(start, min(start + count, size))
            yield chosen, self._rows(torch.arange(size, device=self.device)[chosen])

    def columns(self, numbers: Tensor) -> Tensor:
        """Return the columns of these numbers, (D, k)."""
        return self._rows(numbers).T

    def diagonal(self) -> Tensor:
        """Return the diagonal, (D,)."""
        return torch.full_like(self.points[:, 0], 1 + self.noise)

    def dense(self) -> Tensor:
        """Return the matrix, (D, D), symmetric to the last bit."""
        matrix_DD = torch.cat([rows for _, rows in self.blocks()])
        return (matrix_DD + matrix_DD.T) / 2

    def _rows(self, numbers: Tensor) -> Tensor:
        scaled_Dd = (self.points - self.points.mean(0)) / self.length_scale
        norms_D = scaled_Dd.square().sum(1)
        chosen_bd = scaled_Dd[numbers]
        squares = torch.addmm(norms_D, chosen_bd, scaled_Dd.T, alpha=-2)
        squares.add_(norms_D[numbers, None]).clamp_(min=0)
        within = torch.arange(len(numbers), device=self.device)
        squares[within, numbers] = 0  # exactly; the difference above has rounding
        rows = FUNCTIONS[self.kernel](squares)
        rows[within, numbers] += self.noise
        return rows


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


def gershgorin_bounds(operator: Operator) -> tuple[float, float] | None:
    """Return bounds of the least eigenvalue and of the largest magnitude, or None.

    The second is the largest sum of magnitudes of a row, or above it. Entries are read
    once.

    Args:
        operator: any; None if its entries cannot be read.
    """
    if isinstance(operator, Sparse | GraphOperator):
        diagonal_D, sums_D = operator.diagonal(), operator.row_sums()
    elif isinstance(operator, Dense):
        diagonal_D, sums_D = operator.matrix.diagonal(), operator.matrix.abs().sum(1)
    elif isinstance(operator, KernelMatrix):
        diagonal_D = operator.diagonal()
        sums_D = torch.cat([rows.abs().sum(1) for _, rows in operator.blocks()])
    else:
        return None
    least = diagonal_D + diagonal_D.abs() - sums_D
    return float(least.min()), float(sums_D.max())
