"""Which models of a batch have diverged, when and why."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class Divergence:
    """The first epoch in which each model's loss is not finite or out of bounds.

    All of it stays on the device, so that training need not wait to ask.
    """

    def __init__(self, models: int, device: torch.device, above: float | None) -> None:
        """Take the number of models.

        Args:
            models: M.
            device: of the losses.
            above: multiple of the loss at epoch 0 that is out of bounds; None for no
                such bound.
        """
        self._above = above
        self._bound_M = torch.full(
            (models,), torch.inf, dtype=torch.float64, device=device
        )
        self._blown_M = torch.zeros(models, dtype=torch.bool, device=device)
        self.epoch_M = torch.full((models,), -1, device=device)

    @property
    def alive(self) -> Tensor:
        """Which models have not diverged."""
        return self.epoch_M < 0

    def judge(self, epoch: int, loss_M: Tensor, finite_M: Tensor) -> None:
        """Mark the models that diverge in this epoch.

        Args:
            epoch: epochs completed; the losses of epoch 0 set the bounds.
            loss_M: training losses.
            finite_M: whether all else is finite.
        """
        loss_M = loss_M.double()
        if epoch == 0 and self._above is not None:
            # A start without loss offers no scale to judge by.
            bound_M = self._above * loss_M
            self._bound_M = torch.where(bound_M > 0, bound_M, torch.inf)
        finite_M = finite_M & torch.isfinite(loss_M)
        bounded_M = loss_M <= self._bound_M
        lost_M = self.alive & ~(finite_M & bounded_M)
        self._blown_M |= lost_M & finite_M
        self.epoch_M = self.epoch_M.masked_fill(lost_M, epoch)

    def cause(self, model: int) -> str:
        """Say in words why a model that diverged did so."""
        if self._blown_M[model]:
            return f"loss above {self._above:g} times the initial one"
        return "non-finite loss or weights"

    def tensors(self) -> dict[str, Tensor]:
        """Return the bounds, and what has diverged so far."""
        return {"bound": self._bound_M, "blown": self._blown_M, "epoch": self.epoch_M}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go back to other bounds and models diverged."""
        self._bound_M, self._blown_M = tensors["bound"], tensors["blown"]
        self.epoch_M = tensors["epoch"]
