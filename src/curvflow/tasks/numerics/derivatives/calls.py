"""Calls of modules with one or several inputs, and the one tensor that they return."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn

# Entry of a batch, and of outputs, that is taken where there are several.
INPUTS, TARGETS, LOGITS = "inputs", "targets", "logits"


def arguments(module: nn.Module, batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return how a module is called with the inputs of a batch.

    Inputs that are a dictionary are keyword arguments, and a tuple or a list of them
    positional ones, if `forward` takes them so; else it takes them as one.

    Args:
        module: that is called.
        batch: inputs and targets, or a dictionary of both; of one without `inputs` all
            but `targets` are inputs.

    Returns:
        Positional and keyword arguments.
    """
    if not isinstance(batch, Mapping):
        return _spread(module, batch[0])
    if INPUTS in batch:
        return _spread(module, batch[INPUTS])
    _, named = _spread(module, {k: v for k, v in batch.items() if k != TARGETS})
    return ((), named) if named else ((batch,), {})


def _spread(module: nn.Module, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping) and _takes(module, (), dict(inputs)):
        return (), dict(inputs)
    if isinstance(inputs, tuple | list) and _takes(module, inputs, {}):
        return tuple(inputs), {}
    return (inputs,), {}


def _takes(module: nn.Module, args: Any, named: dict[str, Any]) -> bool:
    while isinstance(inner := getattr(module, "module", None), nn.Module):
        module = inner  # one that trains in parallel takes whatever it is given
    try:
        inspect.signature(module.forward).bind(*args, **named)
    except (TypeError, ValueError):
        return False
    return bool(args or named)


def tensor_of(outputs: Any) -> Any:
    """Return the `logits` of outputs that have them, and others as they are."""
    if isinstance(outputs, Mapping):
        return outputs.get(LOGITS, outputs)
    return getattr(outputs, LOGITS, outputs)
