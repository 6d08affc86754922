"""Products with the Hessian of the mean loss, exact over the data, batch of models.

Forward-over-reverse: the directional derivative of the gradient along each column. The
models of a batch do not interact, so the gradient of the sum of their losses is the
gradient of each, and one pass multiplies all of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.func import grad, jvp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from curvflow.errors import InputError
from curvflow.tasks.numerics.operators import scipy_operator
from curvflow.tasks.numerics.precision import full_precision
from curvflow.tasks.numerics.spans import spans

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

# The first forward derivative makes torch load rules that it compiles by its own
# torch.jit.script, which it calls deprecated (seen in 2.13).
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", ".torch.jit.script. is", DeprecationWarning)
    jvp(torch.sin, (torch.zeros(1),), (torch.zeros(1),))

# From weights (M, D), inputs (M or 1, N, ...) and targets (M or 1, N, ...) to the loss
# of each sample (M, N).
Losses = Callable[[Tensor, Tensor, Tensor], Tensor]


class BatchedHessian:
    """The Hessians of M models as one symmetric operator of shape (M, D, D)."""

    def __init__(
        self,
        losses: Losses,
        weights_MD: Tensor,
        inputs: Tensor,
        targets: Tensor,
        *,
        fixed_MS: Tensor | None = None,
        batch_size: int | None = None,
        models_per_pass: int | None = None,
    ) -> None:
        """Take the loss, where it is expanded, and the data it is averaged over.

        Args:
            losses: loss of each sample, (M, N), of weights, inputs and targets.
            weights_MD: where to take the Hessians; finite.
            inputs: shape (M or 1, N, ...); 1 shares the data between models.
            targets: shape (M or 1, N) or (M or 1, N, C).
            fixed_MS: what `losses` takes behind the weights and nothing is derived by,
                such as the running statistics of a batch norm.
            batch_size: samples per pass, bounding memory; the mean stays exact.
            models_per_pass: models per pass; None for all.
        """
        models, size = weights_MD.shape
        self.shape = (models, size, size)
        self.dtype, self.device = weights_MD.dtype, weights_MD.device
        self._losses, self._weights_MD = losses, weights_MD.detach()
        self._inputs, self._targets = inputs, targets
        self._fixed_MS = weights_MD[:, :0] if fixed_MS is None else fixed_MS
        self._batch_size = batch_size or inputs.shape[1]
        self._models_per_pass = models_per_pass or models

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with vectors (M, D) or columns (M, D, S)."""
        if columns.ndim == 2:
            return (self @ columns.unsqueeze(-1)).squeeze(-1)
        count = self._inputs.shape[1]
        total = torch.zeros_like(columns)
        # Fused attention has no forward derivatives.
        with full_precision(), sdpa_kernel(SDPBackend.MATH):
            for models in spans(len(columns), self._models_per_pass):
                for start in range(0, count, self._batch_size):
                    rows = slice(start, min(start + self._batch_size, count))
                    total[models] += self._sum_product(models, rows, columns[models])
        return total / count

    def _sum_product(self, models: slice, rows: slice, columns_MDS: Tensor) -> Tensor:
        weights_MD, fixed_MS = self._weights_MD[models], self._fixed_MS[models]
        shared = self._inputs.shape[0] == 1
        of_models = slice(None) if shared else models
        inputs, targets = (
            data[of_models, rows] for data in (self._inputs, self._targets)
        )

        def loss(weights_MD: Tensor) -> Tensor:
            weights_MW = torch.cat([weights_MD, fixed_MS], dim=1)
            return self._losses(weights_MW, inputs, targets).sum()

        def along(column_MD: Tensor) -> Tensor:
            product: Tensor = jvp(grad(loss), (weights_MD,), (column_MD,))[1]
            return product

        product: Tensor = vmap(along, in_dims=2, out_dims=2)(columns_MDS)
        return product

    def select(self, models: Tensor) -> BatchedHessian:
        """Return the operator of some of the models, by their indices (m,)."""

        def pick(data: Tensor) -> Tensor:
            return data if data.shape[0] == 1 else data[models]

        return BatchedHessian(
            self._losses,
            self._weights_MD[models],
            pick(self._inputs),
            pick(self._targets),
            fixed_MS=self._fixed_MS[models],
            batch_size=self._batch_size,
            models_per_pass=self._models_per_pass,
        )


class Hessian:
    """The Hessian of one model as a symmetric operator of shape (D, D)."""

    def __init__(self, batched: BatchedHessian) -> None:
        self._batched = batched
        self.shape = batched.shape[1:]
        self.dtype, self.device = batched.dtype, batched.device

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the product with a vector (D,) or columns (D, S)."""
        return (self._batched @ columns.unsqueeze(0)).squeeze(0)

    def adjoint(self) -> Hessian:
        """Return the operator itself: it is symmetric."""
        return self

    def to_scipy(self) -> LinearOperator:
        """Return the same map for SciPy's solvers."""
        return scipy_operator(self)


def hessian(
    losses: Losses,
    weights_D: Tensor,
    inputs: Tensor,
    targets: Tensor,
    *,
    batch_size: int | None = None,
) -> Hessian:
    """Return the Hessian of one model's mean loss as an operator.

    Args:
        losses: loss of each sample, (M, N), of weights (M, D), inputs and targets with
            a leading dimension for the models, here of length 1.
        weights_D: where to take the Hessian, shape (D,).
        inputs: shape (N, ...).
        targets: shape (N,) or (N, C).
        batch_size: samples per pass, bounding memory; the mean stays exact.

    Returns:
        The operator, shape (D, D).

    Raises:
        InputError: a weight is NaN or infinite.
    """
    if not torch.isfinite(weights_D).all():
        raise InputError("weights: expected finite numbers, got NaN or infinity")
    return Hessian(
        BatchedHessian(
            losses, weights_D[None], inputs[None], targets[None], batch_size=batch_size
        )
    )


def dense_hessian(
    losses: Losses, weights_D: Tensor, inputs: Tensor, targets: Tensor
) -> Tensor:
    """Return the Hessian of one model's mean loss as a matrix, for small models.

    Args:
        losses: as for `hessian`.
        weights_D: where to take the Hessian, shape (D,).
        inputs: shape (N, ...).
        targets: shape (N,) or (N, C).

    Returns:
        The matrix, shape (D, D).
    """

    def mean(weights: Tensor) -> Tensor:
        return losses(weights[None], inputs[None], targets[None]).mean()

    matrix: Tensor = torch.func.hessian(mean)(weights_D)
    return matrix
