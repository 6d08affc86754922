"""Sparse symmetric matrices as operators."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from curvflow.tasks.numerics.operators import scipy_operator

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
        rows = torch.repeat_interleave(self.matrix.crow_indices().diff())
        sums = self.matrix.values().new_zeros(self.shape[0])
        return float(sums.index_add(0, rows, self.matrix.values().abs()).max())
