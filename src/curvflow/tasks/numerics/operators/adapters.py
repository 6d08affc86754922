"""Operators of SciPy and of other libraries, and the operator of a single model."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.operators.algebra import BatchedSum, scaled, shifted
from curvflow.tasks.numerics.operators.base import (
    BatchedOperator,
    check_real,
    columns_of,
    scipy_operator,
)

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator


class Foreign:
    """A map of NumPy arrays as an operator of tensors; products run on the CPU."""

    def __init__(self, linear: LinearOperator, dtype: torch.dtype, device: str) -> None:
        self._linear = linear
        self.shape = (int(linear.shape[0]), int(linear.shape[1]))
        self.dtype, self.device = dtype, torch.device(device)

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the product with a vector (D,) or columns (D, S).

        Raises:
            InputError: the vectors are complex.
        """
        check_real(columns)
        product = self._linear @ columns.detach().cpu().numpy()
        # A copy, for a map may return an array that it writes to again.
        return torch.tensor(np.asarray(product), dtype=self.dtype, device=self.device)

    def adjoint(self) -> Foreign:
        """Return the transposed operator."""
        return Foreign(self._linear.T, self.dtype, str(self.device))

    def to_scipy(self) -> LinearOperator:
        """Return the same map for SciPy's solvers."""
        return scipy_operator(self)


def from_scipy(
    matrix: Any, *, dtype: torch.dtype = torch.float64, device: str = "cpu"
) -> Foreign:
    """Take a SciPy operator, a sparse matrix or an array as an operator of tensors.

    Args:
        matrix: anything that SciPy's `aslinearoperator` takes; real.
        dtype: of vectors and products.
        device: of vectors and products; the map itself runs on the CPU.

    Returns:
        The operator.

    Raises:
        InputError: the matrix is complex.

    Examples:
        >>> from scipy.sparse import diags_array
        >>> from curvflow.tasks.numerics import from_scipy
        >>> from_scipy(diags_array([1.0, 2.0])) @ torch.ones(2).double()
        tensor([1., 2.], dtype=torch.float64)
    """
    from scipy.sparse.linalg import aslinearoperator

    linear = aslinearoperator(matrix)
    if np.issubdtype(linear.dtype, np.complexfloating):
        raise InputError(
            f"matrix: expected real entries, got {linear.dtype}. Pass its real part, "
            "or the real matrix of twice the size."
        )
    return Foreign(linear, dtype, device)


class Single:
    """A symmetric operator (D, D), from a batched operator of one model.

    Sums, differences and multiples are operators too.
    """

    def __init__(self, batched: BatchedOperator) -> None:
        self.batched = batched
        self.shape = batched.shape[1:]
        self.dtype, self.device = batched.dtype, batched.device

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the product with a vector (D,) or columns (D, S).

        Raises:
            InputError: the vectors are no tensor, complex, or of another length.
        """
        return (self.batched @ columns_of(self, columns).unsqueeze(0)).squeeze(0)

    def like(self, batched: BatchedOperator) -> Self:
        """Return an operator of this class and size that multiplies by another.

        Args:
            batched: of one model, (1, D, D).
        """
        same = copy(self)
        same.batched = batched
        return same

    def __add__(self, other: Single) -> Self:
        return self.like(BatchedSum([(1.0, self.batched), (1.0, other.batched)]))

    def __sub__(self, other: Single) -> Self:
        return self.like(BatchedSum([(1.0, self.batched), (-1.0, other.batched)]))

    def __mul__(self, factor: float) -> Self:
        return self.like(scaled(self.batched, factor))

    __rmul__ = __mul__

    def shifted(self, shift: float) -> Self:
        """Return A + c I.

        Args:
            shift: c, such as a damping.

        Examples:
            >>> import curvflow, torch
            >>> H = curvflow.from_matrix(torch.eye(2))
            >>> H.shifted(0.5) @ torch.ones(2)
            tensor([1.5000, 1.5000])
        """
        return self.like(shifted(self.batched, shift))

    def adjoint(self) -> Self:
        """Return the operator itself: it is symmetric.

        Examples:
            >>> import curvflow, torch
            >>> H = curvflow.from_matrix(torch.eye(2))
            >>> H.adjoint() is H
            True
        """
        return self

    def to_scipy(self) -> LinearOperator:
        """Return the same map for SciPy's solvers.

        Examples:
            >>> import curvflow, numpy, torch
            >>> H = curvflow.from_matrix(torch.eye(2).double())
            >>> H.to_scipy() @ numpy.ones(2)
            array([1., 1.])
        """
        return scipy_operator(self)
