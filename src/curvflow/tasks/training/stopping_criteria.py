"""Stopping criteria of single models: a target training loss, and divergence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class StoppedModel(NamedTuple):
    """State of one model at the epoch where it stopped.

    Attributes:
        measured: values of the curves, (V,).
        weights: parameters and statistics, (W,).
        state: state of the learning rule, flattened.
        scales: preconditioner of the steps, if it is stored.
    """

    measured: Tensor
    weights: Tensor
    state: Tensor
    scales: Tensor | None = None


class EarlyStopping:
    """Early stopping at a training loss: the state of each model where it reached it.

    A model that has stopped stays in the batch; its later numbers are ignored and do
    not affect other models.

    Attributes:
        below: the target loss.
        epoch_M: epoch at which a model stopped; -1 while it has not.
    """

    def __init__(
        self,
        below: float,
        measured: Tensor,
        weights_MW: Tensor,
        states: Sequence[Tensor],
        scales_MS: Tensor | None = None,
    ) -> None:
        """Allocate storage like the given tensors.

        Args:
            below: training loss at which a model stops.
            measured: values of the curves at one epoch, (V, M).
            weights_MW: parameters and statistics.
            states: state of each model's rule, flattened.
            scales_MS: preconditioner of each model's steps, if it is stored.
        """
        self.below = below
        self.epoch_M = torch.full((len(weights_MW),), -1)
        self._measured = torch.full_like(measured, torch.nan, device="cpu")
        self._weights_MW = torch.full_like(weights_MW, torch.nan, device="cpu")
        self._states = [torch.zeros_like(state) for state in states]
        self._scales_MS = None
        if scales_MS is not None:
            self._scales_MS = torch.full_like(scales_MS, torch.nan, device="cpu")

    @property
    def stopped(self) -> Tensor:
        """Mask of the models that have stopped, (M,)."""
        return self.epoch_M >= 0

    def stopping_now(self, loss_M: Tensor, alive_M: Tensor) -> Tensor:
        """Return a mask of the models that stop now.

        Args:
            loss_M: training losses.
            alive_M: mask of the models that have not diverged.
        """
        return (loss_M.double() <= self.below).cpu() & alive_M.cpu() & ~self.stopped

    def keep(
        self,
        stopping_M: Tensor,
        epoch: int,
        measured: Tensor,
        weights_MW: Tensor,
        states: Sequence[Tensor],
        scales_MS: Tensor | None = None,
    ) -> None:
        """Store the present state of the models that stop.

        Args:
            stopping_M: mask of these models.
            epoch: epochs completed.
            measured: values of the curves, (V, M).
            weights_MW: parameters and statistics.
            states: state of each model's rule, flattened.
            scales_MS: preconditioner of each model's steps, if it is stored.
        """
        self.epoch_M = torch.where(stopping_M, epoch, self.epoch_M)
        self._measured = torch.where(stopping_M, measured.cpu(), self._measured)
        stopping_M1 = stopping_M.unsqueeze(1)
        self._weights_MW = torch.where(stopping_M1, weights_MW.cpu(), self._weights_MW)
        for model in stopping_M.nonzero().flatten().tolist():
            self._states[model] = states[model].clone()
        if self._scales_MS is not None and scales_MS is not None:
            self._scales_MS = torch.where(stopping_M1, scales_MS.cpu(), self._scales_MS)

    def take(self, model: int, epoch: int, parts: StoppedModel) -> None:
        """Take over one model that had stopped in shorter training."""
        self.epoch_M[model] = epoch
        self._measured[:, model] = parts.measured.to(self._measured)
        self._weights_MW[model] = parts.weights.to(self._weights_MW)
        self._states[model] = parts.state
        if self._scales_MS is not None and parts.scales is not None:
            self._scales_MS[model] = parts.scales.to(self._scales_MS)

    def of(self, model: int) -> StoppedModel:
        """Return the state of one model where it stopped."""
        return StoppedModel(
            self._measured[:, model],
            self._weights_MW[model],
            self._states[model],
            None if self._scales_MS is None else self._scales_MS[model],
        )

    def tensors(self) -> dict[str, Tensor]:
        """Return the epochs and states of the models stopped so far."""
        scales = {} if self._scales_MS is None else {"scales": self._scales_MS}
        states = {f"state.{n}": state for n, state in enumerate(self._states)}
        return {
            "epoch": self.epoch_M,
            "measured": self._measured,
            "weights": self._weights_MW,
            **states,
            **scales,
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the epochs and states of stopped models."""
        self.epoch_M, self._measured = tensors["epoch"], tensors["measured"]
        self._weights_MW = tensors["weights"]
        self._states = [tensors[f"state.{n}"] for n in range(len(self._states))]
        if self._scales_MS is not None:
            self._scales_MS = tensors["scales"]


class Divergence:
    """The first epoch in which each model's loss is not finite or out of bounds.

    All tensors stay on the device, so that training need not wait for it.
    """

    def __init__(self, models: int, device: torch.device, above: float | None) -> None:
        """Allocate the masks.

        Args:
            models: M.
            device: device of the losses.
            above: multiple of the loss at epoch 0 that counts as diverged; None for no
                bound.
        """
        self._above = above
        self._bound_M = torch.full(
            (models,), torch.inf, dtype=torch.float64, device=device
        )
        self._blown_M = torch.zeros(models, dtype=torch.bool, device=device)
        self.epoch_M = torch.full((models,), -1, device=device)

    @property
    def alive(self) -> Tensor:
        """Mask of the models that have not diverged, (M,)."""
        return self.epoch_M < 0

    def judge(self, epoch: int, loss_M: Tensor, finite_M: Tensor) -> None:
        """Mark the models that diverge in this epoch.

        Args:
            epoch: epochs completed; the losses of epoch 0 set the bounds.
            loss_M: training losses.
            finite_M: mask of the models whose other numbers are finite.
        """
        loss_M = loss_M.double()
        if epoch == 0 and self._above is not None:
            # A start without loss gives no scale for the bound.
            bound_M = self._above * loss_M
            self._bound_M = torch.where(bound_M > 0, bound_M, torch.inf)
        finite_M = finite_M & torch.isfinite(loss_M)
        bounded_M = loss_M <= self._bound_M
        lost_M = self.alive & ~(finite_M & bounded_M)
        self._blown_M |= lost_M & finite_M
        self.epoch_M = self.epoch_M.masked_fill(lost_M, epoch)

    def cause(self, model: int) -> str:
        """Return in words why a model diverged."""
        if self._blown_M[model]:
            return f"loss above {self._above:g} times the initial one"
        return "non-finite loss or weights"

    def tensors(self) -> dict[str, Tensor]:
        """Return the bounds and the models diverged so far."""
        return {"bound": self._bound_M, "blown": self._blown_M, "epoch": self.epoch_M}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the bounds and the diverged models."""
        self._bound_M, self._blown_M = tensors["bound"], tensors["blown"]
        self.epoch_M = tensors["epoch"]
