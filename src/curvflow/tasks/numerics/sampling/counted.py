"""Losses that count the work they are asked for."""

from __future__ import annotations

from torch import Tensor

from curvflow.tasks.numerics.sampling.posteriors import ChainLosses


class Counted:
    """Chain losses, with the work done so far, per chain.

    Attributes:
        passes: in gradients of the mean loss over all the data; a loss alone is a
            third of one.
    """

    def __init__(self, losses: ChainLosses) -> None:
        """Count the work of `losses` from nothing."""
        self._losses = losses
        self.passes = 0.0

    @property
    def num_samples(self) -> int:
        """Number of samples, N."""
        return self._losses.num_samples

    def values(self, weights_CD: Tensor, rows_CB: Tensor | None) -> Tensor:
        """Return the mean losses, (C,)."""
        self.passes += self._share(rows_CB) / 3
        return self._losses.values(weights_CD, rows_CB)

    def gradients(
        self, weights_CD: Tensor, rows_CB: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the mean losses (C,) and their gradients (C, D)."""
        self.passes += self._share(rows_CB)
        return self._losses.gradients(weights_CD, rows_CB)

    def _share(self, rows_CB: Tensor | None) -> float:
        return 1.0 if rows_CB is None else rows_CB.shape[1] / self.num_samples
