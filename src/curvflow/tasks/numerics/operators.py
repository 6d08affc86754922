"""Linear operators: what every spectral estimator takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

import torch
from torch import Tensor

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator


class Operator(Protocol):
    """A linear map known by its products.

    Attributes:
        shape: rows and columns.
        dtype: of vectors and products.
        device: of vectors and products.
    """

    @property
    def shape(self) -> tuple[int, int]: ...  # noqa: D102 -- see Attributes
    @property
    def dtype(self) -> torch.dtype: ...  # noqa: D102
    @property
    def device(self) -> torch.device: ...  # noqa: D102

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the product with a vector (D,) or columns (D, S)."""

    def adjoint(self) -> Operator:
        """Return the transposed operator."""

    def to_scipy(self) -> LinearOperator:
        """Return the same map for SciPy's solvers; products run on `device`."""


class BatchedOperator(Protocol):
    """One symmetric linear map for each of M models, multiplied together.

    Attributes:
        shape: models, rows and columns.
        dtype: of vectors and products.
        device: of vectors and products.
    """

    @property
    def shape(self) -> tuple[int, int, int]: ...  # noqa: D102 -- see Attributes
    @property
    def dtype(self) -> torch.dtype: ...  # noqa: D102
    @property
    def device(self) -> torch.device: ...  # noqa: D102

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with vectors (M, D) or columns (M, D, S)."""

    def select(self, models: Tensor) -> Self:
        """Return the operator of some of the models, by their indices (m,)."""


def scipy_operator(operator: Operator) -> LinearOperator:
    """Wrap an operator for SciPy's solvers.

    Args:
        operator: the map.

    Returns:
        A LinearOperator on NumPy arrays of the same precision.
    """
    from scipy.sparse.linalg import LinearOperator as Wrapped

    def product(of: Operator, columns: Any) -> Any:
        tensor = torch.as_tensor(columns, dtype=of.dtype, device=of.device)
        return (of @ tensor).cpu().numpy()

    transposed = operator.adjoint()
    return Wrapped(
        dtype=torch.empty(0, dtype=operator.dtype).numpy().dtype,
        shape=operator.shape,
        matvec=lambda v: product(operator, v),
        matmat=lambda v: product(operator, v),
        rmatvec=lambda v: product(transposed, v),
        rmatmat=lambda v: product(transposed, v),
    )


class Dense:
    """An operator whose matrix (rows, columns) is at hand."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix
        self.shape = (matrix.shape[0], matrix.shape[1])
        self.dtype, self.device = matrix.dtype, matrix.device

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the product with a vector (D,) or columns (D, S)."""
        return self.matrix @ columns

    def adjoint(self) -> Dense:
        """Return the transposed operator."""
        return Dense(self.matrix.T)

    def to_scipy(self) -> LinearOperator:
        """Return the same map for SciPy's solvers."""
        return scipy_operator(self)


class BatchedDense:
    """A batched operator whose symmetric matrices (M, D, D) are at hand."""

    def __init__(self, matrices_MDD: Tensor) -> None:
        self.matrices_MDD = matrices_MDD
        models, rows, columns = matrices_MDD.shape
        self.shape = (models, rows, columns)
        self.dtype, self.device = matrices_MDD.dtype, matrices_MDD.device

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with vectors (M, D) or columns (M, D, S)."""
        if columns.ndim == 2:
            return (self.matrices_MDD @ columns.unsqueeze(-1)).squeeze(-1)
        return self.matrices_MDD @ columns

    def select(self, models: Tensor) -> BatchedDense:
        """Return the operator of some of the models, by their indices (m,)."""
        return BatchedDense(self.matrices_MDD[models])
