"""Training state as named arrays, and checkpoints of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from curvflow.schemas.nodes import Array

# State of a learning rule between steps; tuples may be named.
RuleState = Tensor | tuple["RuleState", ...] | None


class Stateful(Protocol):
    """An object whose state can be stored and restored."""

    def tensors(self) -> dict[str, Tensor]:
        """Return the present state by name."""

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state that `tensors` returned."""


def leaves(state: RuleState) -> list[Tensor | None]:
    """List the tensors of a rule's state in order; None where there is none."""
    if isinstance(state, tuple):
        return [leaf for part in state for leaf in leaves(part)]
    return [state]


def with_leaves(state: RuleState, new: Iterator[Tensor | None]) -> RuleState:
    """Return a state of the same form with other tensors.

    Args:
        state: state of that form.
        new: as many tensors as `leaves` lists, in that order.

    Returns:
        The new state.
    """
    if not isinstance(state, tuple):
        return next(new)
    parts = [with_leaves(part, new) for part in state]
    named = getattr(type(state), "_make", tuple)
    made: RuleState = named(parts)
    return made


def state_arrays(part: Stateful) -> dict[str, Array]:
    """Return the state as arrays, which may change in place in further training."""
    return {name: tensor.cpu().numpy() for name, tensor in part.tensors().items()}


def restore_if_fits(part: Stateful, arrays: Mapping[str, Array]) -> bool:
    """Restore a state from arrays if their names, shapes and types fit.

    Args:
        part: object to restore; unchanged if the arrays do not fit. An array of it
            without rows fits any number of rows, as it grows.
        arrays: arrays that `state_arrays` returned.

    Returns:
        True if they fit.
    """
    present = state_arrays(part)
    if present.keys() != arrays.keys():
        return False
    if not all(_fits(array, arrays[name]) for name, array in present.items()):
        return False
    part.restore(
        {
            # Copies: matrix products may depend on the alignment of their memory.
            name: torch.tensor(arrays[name]).to(tensor.device)
            for name, tensor in part.tensors().items()
        }
    )
    return True


def _fits(present: Array, stored: Array) -> bool:
    first = 1 if present.ndim > 1 and not len(present) else 0
    return (
        present.dtype == stored.dtype
        and present.ndim == stored.ndim
        and present.shape[first:] == stored.shape[first:]
    )


class Checkpoints:
    """Weights at chosen epochs, on the CPU; NaN where not reached or diverged.

    Attributes:
        epochs: the chosen epochs.
    """

    def __init__(self, epochs: Sequence[int], like_MD: Tensor) -> None:
        """Take the epochs, and weights of the shape and precision to store."""
        self.epochs = tuple(epochs)
        self._row = {epoch: row for row, epoch in enumerate(self.epochs)}
        shape = (len(self.epochs), *like_MD.shape)
        self._weights_CMD = torch.full(shape, torch.nan, dtype=like_MD.dtype)
        self._rows = 0  # up to the last that is not NaN throughout

    def keep(self, epoch: int, weights_MD: Tensor, alive_M: Tensor) -> None:
        """Store the weights of the models that have not diverged, at a chosen epoch.

        Args:
            epoch: epochs completed.
            weights_MD: present weights.
            alive_M: mask of the models that have not diverged.
        """
        if epoch in self._row:
            row = self._row[epoch]
            shown = weights_MD.masked_fill(~alive_M.unsqueeze(1), torch.nan)
            self._weights_CMD[row] = shown.cpu()
            self._rows = max(self._rows, row + 1)

    @property
    def width(self) -> int:
        """Numbers stored of a model at an epoch, D."""
        return self._weights_CMD.shape[2]

    def take(self, model: int, epochs: Sequence[int], weights_CD: Tensor) -> None:
        """Copy one model's weights at the epochs that are stored here."""
        for epoch, weights_D in zip(epochs, weights_CD, strict=True):
            if epoch in self._row:
                row = self._row[epoch]
                self._weights_CMD[row, model] = weights_D
                self._rows = max(self._rows, row + 1)

    def fill_from(self, model: int, first: int, weights_D: Tensor) -> None:
        """Set one model's weights at all stored epochs from the first on."""
        later = [row for row, epoch in enumerate(self.epochs) if epoch >= first]
        self._weights_CMD[later, model] = weights_D.to(self._weights_CMD)
        self._rows = len(self.epochs)

    def of(self, model: int) -> Tensor:
        """Return one model's weights, (C, D), in float64."""
        return self._weights_CMD[:, model].to(torch.float64, copy=True)

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights stored so far, with rows for those epochs alone."""
        return {"weights": self._weights_CMD[: self._rows]}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore stored weights."""
        self._rows = len(tensors["weights"])
        self._weights_CMD[: self._rows] = tensors["weights"]
