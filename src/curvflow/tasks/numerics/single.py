"""One model's operator, out of a batch of one, with the arithmetic of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.combinations import BatchedSum, scaled, shifted
from curvflow.tasks.numerics.operators import BatchedOperator, scipy_operator

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator


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
            InputError: the vectors are of another length.
        """
        if columns.ndim not in (1, 2) or len(columns) != self.shape[0]:
            raise InputError(
                f"columns: expected shape ({self.shape[0]},) or ({self.shape[0]}, S), "
                f"got {tuple(columns.shape)}. Pass vectors as columns."
            )
        return (self.batched @ columns.unsqueeze(0)).squeeze(0)

    def __add__(self, other: Single) -> Single:
        return Single(BatchedSum([(1.0, self.batched), (1.0, other.batched)]))

    def __sub__(self, other: Single) -> Single:
        return Single(BatchedSum([(1.0, self.batched), (-1.0, other.batched)]))

    def __mul__(self, factor: float) -> Single:
        return Single(scaled(self.batched, factor))

    __rmul__ = __mul__

    def shifted(self, shift: float) -> Single:
        """Return A + c I.

        Args:
            shift: c, such as a damping.
        """
        return Single(shifted(self.batched, shift))

    def adjoint(self) -> Single:
        """Return the operator itself: it is symmetric."""
        return self

    def to_scipy(self) -> LinearOperator:
        """Return the same map for SciPy's solvers."""
        return scipy_operator(self)
