"""The loss that is minimised, over all the data, of a batch of models."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from curvflow.tasks.numerics.differentiable import differentiable
from curvflow.tasks.numerics.spans import spans
from curvflow.tasks.problems import Problem, Samples


class LossOverData:
    """Losses and gradients of M models out of training, in passes that fit memory.

    Attributes:
        share: what the mean over the samples is multiplied by: 1, or for sse their
            number.
    """

    def __init__(self, problem: Problem, weights_MW: Tensor, samples: Samples) -> None:
        """Take the problem, parameters and statistics (M, D + S), and the samples."""
        self._problem, self._samples = problem, samples
        self._weights_MD, self._fixed_MS = problem.network.split(weights_MW)
        self.share = float(samples.count if problem.loss == "sse" else 1)

    def at(self, rates_M: Tensor, steps_MD: Tensor) -> Tensor:
        """Return the losses (M,) at w - rate step.

        Args:
            rates_M: one per model.
            steps_MD: what is taken off at a rate of 1.
        """
        away_MD = rates_M.unsqueeze(1) * steps_MD
        moved_MD = self._weights_MD - away_MD.to(self._weights_MD)
        with torch.no_grad():
            return self._mean(lambda some, rows: self._losses(moved_MD, some, rows))

    def gradient(self) -> Tensor:
        """Return the gradients (M, D) by the parameters."""

        def summed(some: slice, rows: slice) -> Tensor:
            leaf_MD = self._weights_MD.detach().requires_grad_()
            total = self._losses(leaf_MD, some, rows).sum()
            return torch.autograd.grad(total, leaf_MD)[0][some]

        with differentiable():
            return self._mean(summed)

    def _mean(self, sums: Callable[[slice, slice], Tensor]) -> Tensor:
        """Return the sum over passes, by the number of samples, times the share."""
        parts = []
        for some in self._models():
            # Single precision would lose what a small step changes.
            totals = [sums(some, rows).double() for rows in self._rows()]
            parts.append(torch.stack(totals).sum(0))
        return self.share / self._samples.count * torch.cat(parts)

    def _models(self) -> list[slice]:
        most = self._problem.models_per_pass(self._samples.count, 1)
        return spans(len(self._weights_MD), most)

    def _rows(self) -> Iterator[slice]:
        size = self._problem.rows_per_pass(1)
        for start in range(0, self._samples.count, size):
            yield slice(start, start + size)

    def _losses(self, weights_MD: Tensor, some: slice, rows: slice) -> Tensor:
        """Return the sums over some samples of the losses of some models."""
        own = self._samples.models(some).rows(rows)
        weights_MW = torch.cat([weights_MD[some], self._fixed_MS[some]], dim=1)
        losses_MN = self._problem.losses(weights_MW, own.inputs, own.targets)
        return losses_MN.double().sum(1)
