"""Products with the Hessian of the mean loss, exact over the data, batch of models.

The models of a batch do not interact, so the gradient of the sum of their losses is the
gradient of each, and one pass multiplies all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from curvflow.tasks.numerics.derivatives.differentiation_modes import (
    Order,
    Trial,
    fastest,
    hessian_product,
    named_product,
    tried,
)
from curvflow.tasks.numerics.derivatives.passes import (
    Averaged,
    Draw,
    Draws,
    Part,
    Product,
)

# From weights (M, D), inputs (M or 1, N, ...) and targets (M or 1, N, ...) to the loss
# of each sample (M, N); where passes draw, by a source `draw` of random numbers.
Losses = Callable[..., Tensor]

# Samples that a trial of the orders is made on.
TRIAL_SAMPLES = 64


class BatchedHessian(Averaged):
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
        order: Order | Literal["auto"] = "forward_over_reverse",
        key: Hashable = None,
        tell: Callable[[Trial], None] | None = None,
        draws: Draws | None = None,
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
            order: of differentiation; `auto` takes the fastest. The orders agree up to
                rounding, so what must have equal bits names one.
            key: of the problem, for trials to be made once per process.
            tell: called with the trial that `auto` has made.
            draws: see `Averaged`.
        """
        super().__init__(
            weights_MD,
            inputs,
            targets,
            fixed_MS=fixed_MS,
            batch_size=batch_size,
            models_per_pass=models_per_pass,
            draws=draws,
        )
        self._losses, self._order = losses, order
        self._key, self._tell = key, tell

    def prepare(self, part: Part, columns: int) -> Product:
        """Return the product with the sum of the Hessians of a part's samples.

        Args:
            part: of one pass.
            columns: how many will be multiplied at once.

        Returns:
            A function from columns (M, D, S) of the part's models to their products.
        """
        if self._order == "auto":
            self._order = self._tried(part, columns)
        return named_product(self._order, self.scalar(part), part.weights)

    def call(self, part: Part, draw: Draw) -> Tensor:
        """Return the losses of a part, (M, N), by numbers from a source."""
        weights_MW = part.full(part.weights)
        return self._losses(weights_MW, part.inputs, part.targets, draw=draw)

    def scalar(self, part: Part) -> Callable[[Tensor], Tensor]:
        """Return the sum of a part's losses as a function of weights (M, D)."""

        def loss(weights_MD: Tensor) -> Tensor:
            weights_MW = part.full(weights_MD)
            losses_MN = self._losses(
                weights_MW, part.inputs, part.targets, **part.drawing()
            )
            return losses_MN.sum()

        return loss

    def _tried(self, part: Part, columns: int) -> Order:
        small = self._drawing(part.first(TRIAL_SAMPLES))
        loss, weights_MD = self.scalar(small), small.weights
        orders = tried(keeps=self._keeps(), columns=columns)
        trial = fastest(
            {o: partial(hessian_product, o, loss, weights_MD) for o in orders},
            torch.ones_like(weights_MD).unsqueeze(-1).repeat(1, 1, columns),
            keeps=self._keeps(),
            key=self._key,
        )
        if self._tell:
            self._tell(trial)
        (order,) = (o for o in orders if o == trial.order)
        return order


def dense_hessian(
    losses: Losses, weights_D: Tensor, inputs: Tensor, targets: Tensor
) -> Tensor:
    """Return the Hessian of one model's mean loss as a matrix, for small models.

    Args:
        losses: loss of each sample, (M, N), of weights (M, D), inputs and targets with
            a leading dimension for the models, here of length 1.
        weights_D: where to take the Hessian, shape (D,).
        inputs: shape (N, ...).
        targets: shape (N,) or (N, C).

    Returns:
        The matrix, shape (D, D).

    Examples:
        >>> from curvflow.tasks.numerics import dense_hessian
        >>> def losses(weights, inputs, targets):
        ...     return (weights.square().sum(1, keepdim=True) * inputs).squeeze(0)
        >>> x, y = torch.tensor([1.0, 2.0]), torch.zeros(2)
        >>> dense_hessian(losses, torch.ones(2), x, y)
        tensor([[3., 0.],
                [0., 3.]])
    """

    def mean(weights: Tensor) -> Tensor:
        return losses(weights[None], inputs[None], targets[None]).mean()

    # The gradient is taken once: `torch.func.hessian` is wrong for layer norms (2.13).
    matrix: Tensor = torch.func.jacfwd(torch.func.grad(mean))(weights_D)
    return matrix
