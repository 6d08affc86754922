"""States as tensors and arrays by name, whatever holds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
