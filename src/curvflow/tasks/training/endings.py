"""Models that diverge, or reach the loss at which their training stops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Arrived(NamedTuple):
    """One model at its arrival.

    Attributes:
        measured: values of its curves, (V,).
        weights: parameters and statistics, (W,).
        state: what its rule keeps, flattened.
        scales: how its steps are scaled, if that is kept.
    """

    measured: Tensor
    weights: Tensor
    state: Tensor
    scales: Tensor | None = None


class Arrivals:
    """What each model was at the first epoch whose training loss is low enough.

    What becomes of it later in the batch is of no meaning and touches no sibling.

    Attributes:
        below: the loss.
        epoch_M: of arrival; -1 as long as a model has not arrived.
    """

    def __init__(
        self,
        below: float,
        measured: Tensor,
        weights_MW: Tensor,
        states: Sequence[Tensor],
        scales_MS: Tensor | None = None,
    ) -> None:
        """Take the loss, and what has the shapes of what is to be kept.

        Args:
            below: training loss at which a model has arrived.
            measured: values of a model's curves at one epoch, (V, M).
            weights_MW: parameters and statistics.
            states: what each model's rule keeps, flattened.
            scales_MS: how each model's steps are scaled, if that is kept.
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
    def arrived(self) -> Tensor:
        """Which models have arrived, (M,)."""
        return self.epoch_M >= 0

    def due(self, loss_M: Tensor, alive_M: Tensor) -> Tensor:
        """Return which models arrive now.

        Args:
            loss_M: training losses.
            alive_M: which models have not diverged.
        """
        return (loss_M.double() <= self.below).cpu() & alive_M.cpu() & ~self.arrived

    def keep(
        self,
        due_M: Tensor,
        epoch: int,
        measured: Tensor,
        weights_MW: Tensor,
        states: Sequence[Tensor],
        scales_MS: Tensor | None = None,
    ) -> None:
        """Keep the models that arrive as they are.

        Args:
            due_M: which do.
            epoch: epochs completed.
            measured: values of the curves, (V, M).
            weights_MW: their parameters and statistics.
            states: what each model's rule keeps, flattened.
            scales_MS: how each model's steps are scaled, if that is kept.
        """
        self.epoch_M = torch.where(due_M, epoch, self.epoch_M)
        self._measured = torch.where(due_M, measured.cpu(), self._measured)
        due_M1 = due_M.unsqueeze(1)
        self._weights_MW = torch.where(due_M1, weights_MW.cpu(), self._weights_MW)
        for model in due_M.nonzero().flatten().tolist():
            self._states[model] = states[model].clone()
        if self._scales_MS is not None and scales_MS is not None:
            self._scales_MS = torch.where(due_M1, scales_MS.cpu(), self._scales_MS)

    def take(self, model: int, epoch: int, parts: Arrived) -> None:
        """Take one model that had arrived in shorter training."""
        self.epoch_M[model] = epoch
        self._measured[:, model] = parts.measured.to(self._measured)
        self._weights_MW[model] = parts.weights.to(self._weights_MW)
        self._states[model] = parts.state
        if self._scales_MS is not None and parts.scales is not None:
            self._scales_MS[model] = parts.scales.to(self._scales_MS)

    def of(self, model: int) -> Arrived:
        """Return one model as it was."""
        return Arrived(
            self._measured[:, model],
            self._weights_MW[model],
            self._states[model],
            None if self._scales_MS is None else self._scales_MS[model],
        )

    def tensors(self) -> dict[str, Tensor]:
        """Return who has arrived so far, and as what."""
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
        """Go back to who had arrived."""
        self.epoch_M, self._measured = tensors["epoch"], tensors["measured"]
        self._weights_MW = tensors["weights"]
        self._states = [tensors[f"state.{n}"] for n in range(len(self._states))]
        if self._scales_MS is not None:
            self._scales_MS = tensors["scales"]


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
