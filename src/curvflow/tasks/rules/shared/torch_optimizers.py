"""Optimisers written for PyTorch's modules, taken apart into steps and states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from curvflow.errors import InputError, nearest
from curvflow.schemas.rules.torch_optimizer import TorchOptimizer

# Types that an optimiser may keep besides tensors, and those they are stored as.
NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64}

# What an optimiser that is used as it is not meant to be may raise.
REFUSALS = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError),
    *(RuntimeError, TypeError, ValueError),
)

# Place of entries of the group; those of the parameter tensors are 0, 1, ...
GROUP = -1


@dataclass(frozen=True)
class Entry:
    """One quantity of an optimiser's state.

    Attributes:
        place: number of the parameter tensor whose state it is, or `GROUP`.
        name: in that state.
        type: of its value; numbers are kept as tensors and given back as numbers.
    """

    place: int
    name: str
    type: type


def made(rule: TorchOptimizer, tensors: Sequence[Tensor], lr: float) -> Optimizer:
    """Make an optimiser of some tensors.

    Args:
        rule: names its class and keyword arguments.
        tensors: first values of the parameters; they are copied.
        lr: learning rate.

    Returns:
        The optimiser; its parameters are in the first of its groups.

    Raises:
        InputError: there is no such class, or it does not take these arguments.
    """
    parameters = [nn.Parameter(tensor.clone()) for tensor in tensors]
    kind = _found(rule.optimizer)
    try:
        return kind(parameters, lr=lr, **rule.kwargs)
    except REFUSALS as error:
        raise InputError(
            f"optimizer: expected {rule.optimizer} to take lr and the keyword "
            f"arguments {', '.join(rule.kwargs) or '(none)'} for these parameters, got "
            f"{type(error).__name__}: {error}. Correct kwargs, or choose another."
        ) from error


def parameters(optimizer: Optimizer) -> list[Tensor]:
    """Return the parameters of an optimiser."""
    tensors: list[Tensor] = optimizer.param_groups[0]["params"]
    return tensors


def stepped(
    optimizer: Optimizer, gradients: Sequence[Tensor], path: str
) -> list[Tensor]:
    """Take one step.

    Args:
        optimizer: takes the step; its parameters change.
        gradients: by its parameters; they are copied.
        path: of its class.

    Returns:
        The parameters after the step.

    Raises:
        InputError: it does not step on dense gradients alone.
    """
    for parameter, gradient in zip(parameters(optimizer), gradients, strict=True):
        parameter.grad = gradient.clone()
    try:
        optimizer.step()
    except REFUSALS as error:
        other = "another, or rule sam for two" if "closure" in str(error) else "another"
        raise InputError(
            f"optimizer: expected {path} to step on a dense gradient alone, got "
            f"{type(error).__name__}: {error}. Choose {other}."
        ) from error
    return [parameter.detach() for parameter in parameters(optimizer)]


def numbers(optimizer: Optimizer) -> dict[str, Any]:
    """Return those settings of an optimiser's group that are numbers, by name."""
    settings = optimizer.param_groups[0].items()
    return {name: v for name, v in settings if type(v) in NUMBERS}


def entries(optimizer: Optimizer, path: str, group: Sequence[str]) -> tuple[Entry, ...]:
    """List what an optimiser that has stepped keeps.

    Args:
        optimizer: it.
        path: of its class.
        group: names of the numbers that its group keeps.

    Returns:
        The entries, in an order that depends on their names alone.

    Raises:
        InputError: it keeps something else than tensors and numbers.
    """
    entries = []
    for place, parameter in enumerate(parameters(optimizer)):
        state = optimizer.state.get(parameter, {})
        for name, value in sorted(state.items()):
            if not (
                value is None or type(value) in NUMBERS or isinstance(value, Tensor)
            ):
                raise InputError(
                    f"optimizer: expected {path} to keep tensors and numbers in its "
                    f"state, got {type(value).__name__} '{name}'. Choose another."
                )
            entries.append(Entry(place, name, _type(value)))
    settings = optimizer.param_groups[0]
    return (*entries, *(Entry(GROUP, n, type(settings[n])) for n in group))


def kept(optimizer: Optimizer, wanted: Sequence[Entry], path: str) -> list[Any]:
    """Return what an optimiser keeps, numbers as tensors.

    Args:
        optimizer: it.
        wanted: what it is known to keep.
        path: of its class.

    Returns:
        A tensor or None for each of `wanted`.

    Raises:
        InputError: it keeps something else than is wanted.
    """
    group = [entry.name for entry in wanted if entry.place == GROUP]
    if entries(optimizer, path, group) != tuple(wanted):
        raise InputError(
            f"optimizer: expected {path} to keep the same quantities after each step, "
            "got others than after the first. Choose another."
        )
    values = []
    for entry in wanted:
        value = _state(optimizer, entry.place)[entry.name]
        dtype = NUMBERS.get(entry.type)
        values.append(torch.tensor(value, dtype=dtype) if dtype else value)
    return values


def give_back(
    optimizer: Optimizer, wanted: Sequence[Entry], values: Sequence[Tensor | None]
) -> None:
    """Let an optimiser that has not stepped go on from another's state.

    Args:
        optimizer: it.
        wanted: what the other kept.
        values: as `kept` returned them; they are copied.
    """
    optimizer.state.clear()
    for entry, value in zip(wanted, values, strict=True):
        given: Any = None if value is None else value.clone()
        if entry.type in NUMBERS:
            given = given.item()
        _state(optimizer, entry.place)[entry.name] = given


def _state(optimizer: Optimizer, place: int) -> dict[str, Any]:
    if place == GROUP:
        return optimizer.param_groups[0]
    state: dict[str, Any] = optimizer.state[parameters(optimizer)[place]]
    return state


def _type(value: object) -> type:
    return Tensor if isinstance(value, Tensor) else type(value)


def _found(path: str) -> Callable[..., Optimizer]:
    module_name, _, name = path.partition(":")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise InputError(
            f"optimizer: expected a module that can be imported, got '{module_name}' "
            f"({error}). Install it, or add its folder to PYTHONPATH."
        ) from error
    kind = getattr(module, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Optimizer)):
        known = [n for n, v in vars(module).items() if isinstance(v, type)]
        raise InputError(
            f"optimizer: expected a torch.optim.Optimizer of module '{module_name}', "
            f"got '{name}'. {nearest(name, known)}"
        )
    optimizer: Callable[..., Optimizer] = kind
    return optimizer
