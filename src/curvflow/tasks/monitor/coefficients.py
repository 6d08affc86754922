"""A learning coefficient at a step of training, here or in another process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from curvflow.errors import InputError
from curvflow.tasks.llc import library
from curvflow.tasks.numerics.derivatives.batches import Batch
from curvflow.tasks.numerics.derivatives.subjects import Loss


@dataclass(frozen=True)
class CoefficientRequest:
    """The arguments of `curvflow.llc`.

    Attributes:
        module: in evaluation mode.
        loss: of outputs and targets.
        batches: the data.
        arguments: the others, by name.
        weights: tensors or arrays by name, to be put in place of those of the module;
            None leaves them.
    """

    module: nn.Module
    loss: Loss | str
    batches: list[Batch]
    arguments: Mapping[str, Any]
    weights: Mapping[str, Any] | None = None

    def estimate(self) -> dict[str, Any]:
        """Estimate the local learning coefficient in one thread, and take the time.

        The module is the caller's own: it gets the weights.

        Returns:
            Numbers by name.
        """
        began, before = perf_counter(), torch.get_num_threads()
        if self.weights is not None:
            place(self.module, self.weights)
        torch.set_num_threads(1)
        try:
            numbers = coefficient(self)
        finally:
            torch.set_num_threads(before)
        return {**numbers, "llc_seconds": perf_counter() - began}


def checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of `curvflow.llc`, with numbers of Python's in place of NumPy's.

    Args:
        options: by name.

    Raises:
        InputError: a value cannot be taken.
    """
    plain = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in options.items()
    }
    try:
        library.parameters(cast("library.LlcOptions", plain))
    except InputError as error:
        raise InputError(f"llc: {error}") from None
    return plain


def described(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as a file keeps them, the same in every program."""
    return {name: _described(value) for name, value in options.items()}


def _described(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        entries = [_described(entry) for entry in value]
        return entries if isinstance(value, list | tuple) else sorted(entries, key=str)
    of = value if hasattr(value, "__qualname__") else type(value)
    return f"{of.__module__}.{of.__qualname__}"


def as_tensors(weights: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return weights as tensors, which may have been read as arrays."""
    return {name: torch.as_tensor(value) for name, value in weights.items()}


def place(module: nn.Module, weights: Mapping[str, Any]) -> None:
    """Put weights, tensors or arrays by name, in place of those of a module."""
    module.load_state_dict(as_tensors(weights), strict=False)


def coefficient(request: CoefficientRequest) -> dict[str, Any]:
    """Estimate the local learning coefficient, as `curvflow.llc` does.

    Args:
        request: its arguments.

    Returns:
        Numbers by name; what cannot be estimated is NaN, with the reason.
    """
    arguments = request.arguments
    try:
        fit = library.coefficient(
            request.module, request.loss, request.batches, **arguments
        )
    except (InputError, torch.OutOfMemoryError) as error:
        return nothing(str(error).splitlines()[0])
    return {
        "llc_mean": fit.llc_mean,
        "llc_sem": fit.llc_sem,
        "llc_verdict": fit.verdict,
        "llc_reason": fit.reason,
    }


def nothing(reason: str) -> dict[str, Any]:
    """Return the numbers of an estimate that failed."""
    numbers = {"llc_mean": torch.nan, "llc_sem": torch.nan}
    return {**numbers, "llc_verdict": "failed", "llc_reason": reason}
