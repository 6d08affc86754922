"""An operator as a learning rule with a diagonal preconditioner sees it."""

from __future__ import annotations

from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.operators import BatchedOperator


class Preconditioned:
    """The operator P^-1/2 A P^-1/2 for diagonal P.

    It is similar to P^-1 A, so that a rule with steps -lr P^-1 g is stable on a
    quadratic while lr times its largest eigenvalue stays below 2.
    """

    def __init__(self, operator: BatchedOperator, preconditioner_MD: Tensor) -> None:
        """Take A and the diagonal of P.

        Args:
            operator: A, (M, D, D).
            preconditioner_MD: the diagonal of P, positive.

        Raises:
            InputError: an entry is not positive, or not finite.
        """
        if not (preconditioner_MD > 0).all() or preconditioner_MD.isinf().any():
            raise InputError(
                "preconditioner: expected finite numbers above 0, got "
                f"{float(preconditioner_MD.min())} to "
                f"{float(preconditioner_MD.max())}. Add the rule's eps, and take a "
                "state after the first step."
            )
        self._operator = operator
        self._roots_MD = preconditioner_MD.double().rsqrt()
        self.shape = operator.shape
        self.dtype, self.device = operator.dtype, operator.device

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with vectors (M, D) or columns (M, D, S)."""
        roots = self._roots_MD.to(columns)
        if columns.ndim == 3:
            roots = roots.unsqueeze(-1)
        return roots * (self._operator @ (roots * columns))

    def select(self, models: Tensor) -> Preconditioned:
        """Return the operator of some of the models, by their indices (m,)."""
        some = Preconditioned.__new__(Preconditioned)
        some._operator = self._operator.select(models)
        some._roots_MD = self._roots_MD[models]
        some.shape = (len(models), *self.shape[1:])
        some.dtype, some.device = self.dtype, self.device
        return some

    def lifted(self, vectors: Tensor) -> Tensor:
        """Return P^-1/2 times vectors: eigenvectors here as directions of weights.

        Args:
            vectors: shape (M, D) or (M, D, S).
        """
        roots = self._roots_MD.to(vectors)
        return (roots.unsqueeze(-1) if vectors.ndim == 3 else roots) * vectors
