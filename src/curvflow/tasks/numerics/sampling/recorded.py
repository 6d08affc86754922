"""What is seen at the draws of a walk."""

from __future__ import annotations

import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling.posteriors import Posterior
from curvflow.tasks.numerics.sampling.steps import Steps


class Recorded:
    """Losses, distances and, if asked for, weights of draws, in order.

    Attributes:
        steps: of the draws, their numbers in the walk.
    """

    def __init__(self, posterior: Posterior, steps: Steps) -> None:
        """Record nothing yet."""
        self._posterior, self._how = posterior, steps
        self.steps: list[int] = []
        self._losses: list[Tensor] = []
        self._seen: list[Tensor] = []
        self._distances: list[Tensor] = []
        self._weights: list[Tensor] = []
        self._centre_losses_C: Tensor | None = None
        self._apart_CD: Tensor | None = None

    def before(self, step: int, weights_CD: Tensor, rows_CB: Tensor | None) -> None:
        """Record the weights that a step is about to leave."""
        if self._apart_CD is None:
            self._apart_CD = torch.empty_like(weights_CD)
        torch.sub(weights_CD, self._posterior.centre, out=self._apart_CD)
        self._distances.append(torch.linalg.vector_norm(self._apart_CD, dim=1))
        if self._how.keep_draws:
            self._weights.append(weights_CD.clone())
        if rows_CB is not None and self._how.at_draws == "full":
            self._losses.append(self._posterior.losses.values(weights_CD, None))
        elif rows_CB is not None and self._how.at_draws == "control_variate":
            self._losses.append(self._apart_from_all(rows_CB))
        self.steps.append(step)

    def _apart_from_all(self, rows_CB: Tensor) -> Tensor:
        losses, centre_CD = self._posterior.losses, self._posterior.centre
        if self._centre_losses_C is None:
            self._centre_losses_C = losses.values(centre_CD, None)
        return self._centre_losses_C - losses.values(centre_CD, rows_CB)

    def after(self, losses_C: Tensor) -> None:
        """Record the mean losses that the step saw there, (C,)."""
        self._seen.append(losses_C)
        if len(self._losses) < len(self._seen):
            self._losses.append(losses_C)
        elif self._how.at_draws == "control_variate":
            self._losses[-1] = self._losses[-1] + losses_C

    def losses(self, like_CD: Tensor) -> Tensor:
        """Return the mean losses as they were asked for, (C, K)."""
        return _stacked(self._losses, like_CD[:, 0])

    def batch_losses(self, like_CD: Tensor) -> Tensor:
        """Return the mean losses that the sampler saw, (C, K)."""
        return _stacked(self._seen, like_CD[:, 0])

    def distances(self, like_CD: Tensor) -> Tensor:
        """Return the distances from the centre, (C, K)."""
        return _stacked(self._distances, like_CD[:, 0])

    def weights(self, like_CD: Tensor) -> Tensor | None:
        """Return the draws, (C, K, D), if they were asked for."""
        return _stacked(self._weights, like_CD) if self._how.keep_draws else None


def _stacked(rows: list[Tensor], like: Tensor) -> Tensor:
    return (
        torch.stack(rows, 1) if rows else like.new_empty(len(like), 0, *like.shape[1:])
    )
