"""States as named arrays, and weights kept along training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from curvflow.schemas.nodes import Array

# What a learning rule keeps between steps; tuples may be named.
RuleState = Tensor | tuple["RuleState", ...] | None


class Part(Protocol):
    """Something that changes as training goes on."""

    def tensors(self) -> dict[str, Tensor]:
        """Return by name all that changes, as it is now."""

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go back to where `tensors` returned these."""


def leaves(state: RuleState) -> list[Tensor | None]:
    """List the quantities of a rule's state in order; None where there is none."""
    if isinstance(state, tuple):
        return [leaf for part in state for leaf in leaves(part)]
    return [state]


def with_leaves(state: RuleState, new: Iterator[Tensor | None]) -> RuleState:
    """Return a state of the same form with other quantities.

    Args:
        state: gives the form.
        new: as many as `leaves` lists, in that order.

    Returns:
        The new state.
    """
    if not isinstance(state, tuple):
        return next(new)
    parts = [with_leaves(part, new) for part in state]
    named = getattr(type(state), "_make", tuple)
    made: RuleState = named(parts)
    return made


def as_arrays(part: Part) -> dict[str, Array]:
    """Return a part's tensors as arrays, which may change when training goes on."""
    return {name: tensor.cpu().numpy() for name, tensor in part.tensors().items()}


def restored(part: Part, arrays: Mapping[str, Array]) -> bool:
    """Bring a part to the state that arrays hold, if they are of its form.

    Args:
        part: left as it is if the arrays differ from its own in names, shapes or types.
        arrays: what `as_arrays` returned.

    Returns:
        Whether they fit.
    """

    def form(array: Array) -> object:
        return array.shape, array.dtype

    present = {name: form(array) for name, array in as_arrays(part).items()}
    if present != {name: form(array) for name, array in arrays.items()}:
        return False
    part.restore(
        {
            # Copies: products of matrices may depend on where in memory they begin.
            name: torch.tensor(arrays[name]).to(tensor.device)
            for name, tensor in part.tensors().items()
        }
    )
    return True


class Checkpoints:
    """Weights at some epochs, on the CPU; NaN where not reached or diverged.

    Attributes:
        epochs: whose weights are kept.
    """

    def __init__(self, epochs: Sequence[int], like_MD: Tensor) -> None:
        """Take the epochs, and weights of the shape and precision to keep."""
        self.epochs = tuple(epochs)
        self._row = {epoch: row for row, epoch in enumerate(self.epochs)}
        shape = (len(self.epochs), *like_MD.shape)
        self._weights_CMD = torch.full(shape, torch.nan, dtype=like_MD.dtype)

    def keep(self, epoch: int, weights_MD: Tensor, alive_M: Tensor) -> None:
        """Keep the weights of the models that have not diverged, if it is their epoch.

        Args:
            epoch: epochs completed.
            weights_MD: present weights.
            alive_M: which models have not diverged.
        """
        if epoch in self._row:
            shown = weights_MD.masked_fill(~alive_M.unsqueeze(1), torch.nan)
            self._weights_CMD[self._row[epoch]] = shown.cpu()

    def take(self, model: int, epochs: Sequence[int], weights_CD: Tensor) -> None:
        """Take one model's weights at those of some epochs that are kept here."""
        for epoch, weights_D in zip(epochs, weights_CD, strict=True):
            if epoch in self._row:
                self._weights_CMD[self._row[epoch], model] = weights_D

    def hold(self, model: int, epoch: int, weights_D: Tensor) -> None:
        """Give one model's weights at an epoch to it and all after it."""
        later = [row for row, one in enumerate(self.epochs) if one >= epoch]
        self._weights_CMD[later, model] = weights_D.to(self._weights_CMD)

    def of(self, model: int) -> Tensor:
        """Return one model's weights, (C, D), in float64."""
        return self._weights_CMD[:, model].to(torch.float64, copy=True)

    def tensors(self) -> dict[str, Tensor]:
        """Return what has been kept so far."""
        return {"weights": self._weights_CMD}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go back to what had been kept."""
        self._weights_CMD = tensors["weights"]
