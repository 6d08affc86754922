"""Tensors of a module that its layers hold a second time, outside their places."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import CellType, FunctionType
from typing import Any, NamedTuple

from torch import Tensor, nn

# Where a layer has what torch knows of.
_OF_TORCH = ("_parameters", "_buffers", "_modules")
_WALKED = (list, dict, OrderedDict)


class Home(NamedTuple):
    """A place of a tensor in a layer.

    Attributes:
        tensors: parameters or buffers of the layer, or what it holds them in.
        key: of the tensor among them.
        name: first one of the tensor in the module.
        tensor: the module's own.
    """

    tensors: Any
    key: Any
    name: str
    tensor: Tensor


class _Cells:
    """Values that a function has taken from around it, by number."""

    def __init__(self, cells: tuple[CellType, ...]) -> None:
        self._cells = cells

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        for number, cell in enumerate(self._cells):
            try:
                yield number, cell.cell_contents
            except ValueError:  # it is empty as yet
                continue

    def __setitem__(self, number: int, value: object) -> None:
        self._cells[number].cell_contents = value


class _Defaults:
    """Defaults of a function's arguments, by number."""

    def __init__(self, function: FunctionType) -> None:
        self._function = function

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        return iter(enumerate(self._function.__defaults__ or ()))

    def __setitem__(self, number: int, value: object) -> None:
        defaults = list(self._function.__defaults__ or ())
        defaults[number] = value
        self._function.__defaults__ = tuple(defaults)


def held_tensors(module: nn.Module, named: Mapping[str, Tensor]) -> list[Home]:
    """Return where layers hold tensors a second time, as they are or detached.

    That is in lists, dictionaries, functions and partial functions, and in such within
    these.

    Args:
        module: whose layers are looked at.
        named: the tensors, by name.
    """
    names = {id(tensor): name for name, tensor in named.items()}
    aliases = {_memory(tensor): name for name, tensor in named.items()}
    homes: list[Home] = []
    left: list[Any] = [vars(layer) for layer in module.modules()]
    seen: set[int] = set()
    while left:
        store = left.pop()
        for key, value in _pairs(store):
            if isinstance(key, str) and key in _OF_TORCH:
                continue
            if isinstance(value, Tensor):
                name = names.get(id(value)) or aliases.get(_memory(value), "")
                homes += [Home(store, key, name, value)] if name else []
            elif id(value) not in seen:
                seen.add(id(value))
                left += _stores_of(value)
    return homes


@contextmanager
def put(homes: list[Home], tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Put other tensors into the places of a module's own, within the block."""
    for store, key, name, _ in homes:
        store[key] = tensors[name]
    try:
        yield
    finally:
        for store, key, _, tensor in homes:
            store[key] = tensor


def _pairs(store: Any) -> list[tuple[Any, Any]]:
    if isinstance(store, dict):
        return list(store.items())
    return list(enumerate(store) if isinstance(store, list) else store)


def _stores_of(value: object) -> Iterator[Any]:
    """Yield what holds the values within a value."""
    if type(value) in _WALKED:
        yield value
    elif isinstance(value, FunctionType):
        yield _Cells(value.__closure__ or ())
        yield _Defaults(value)
        yield value.__kwdefaults__ or {}
    elif isinstance(value, partial):
        yield value.keywords
        yield from _stores_of(value.func)


def _memory(tensor: Tensor) -> object:
    """Return what two tensors of the same entries of one memory have in common."""
    try:
        place = tensor.untyped_storage().data_ptr()
    # Tensors within transforms, and those without values, have none.
    except (RuntimeError, NotImplementedError):
        return id(tensor)
    form = tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()
    return (place, *form) if place else id(tensor)
