"""Matrices of a function of two points, multiplied without being formed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from curvflow.tasks.numerics.operators import scipy_operator

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

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
