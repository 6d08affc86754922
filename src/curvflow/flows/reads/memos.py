"""States of modules, which tell whether a call has left something in them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import _lru_cache_wrapper
from types import FunctionType, MethodType, ModuleType
from typing import Any
from zlib import crc32

import numpy as np

from curvflow.flows.reads.places import origin


def is_users(module: str) -> bool:
    """Return whether a module is loaded, from a file of a user's."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and origin(file) == "user"


DEPTH = 4
MANY = 10_000  # entries of a container that are looked at one by one
SMALL = 1 << 20  # bytes of an array whose content is compared
PLAIN = (str, int, float, bool, bytes, complex, type(None), ModuleType)


def state_of(module: ModuleType | None) -> object:
    """Return what tells that a module holds something else: its values, by identity."""
    if module is None:
        return None
    values = [v for k, v in list(vars(module).items()) if not k.startswith("__")]
    return [_state(value, DEPTH) for value in values]


def _state(value: object, depth: int) -> object:
    if isinstance(value, PLAIN) or not depth:
        return id(value)
    if isinstance(value, np.ndarray):
        is_small = value.nbytes <= SMALL and not value.dtype.hasobject
        return id(value), crc32(value.tobytes()) if is_small else 0
    if isinstance(value, _lru_cache_wrapper):
        return id(value), _filled(value.cache_info())
    if type(value).__module__.partition(".")[0] == "torch":
        return id(value), getattr(value, "_version", 0)  # moves in place
    return id(value), [_state(item, depth - 1) for item in _inner(value)]


def _filled(info: Any) -> object:
    """Return what tells that a memo has another entry; nothing does of a full one."""
    is_full = info.maxsize is not None and info.currsize >= info.maxsize > 0
    return object() if is_full else info.currsize


def _inner(value: object) -> list[object]:
    """Return what hangs on a value: entries, attributes, what a function holds."""
    if isinstance(value, dict):
        return [*list(dict.values(value))[:MANY], len(value)]
    if isinstance(value, list | set | tuple):
        return [*list(value)[:MANY], len(value)]
    if isinstance(value, FunctionType) and (
        value.__closure__ or is_users(value.__module__)
    ):
        return [*(value.__defaults__ or ()), *_cells(value), value.__dict__]
    if isinstance(value, MethodType):
        return [value.__self__]
    kind = value if isinstance(value, type) else type(value)
    if is_users(kind.__module__):
        attributes = getattr(value, "__dict__", {}).items()
        return [item for name, item in attributes if not name.startswith("__")]
    return []


def _cells(function: FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not bound yet
            continue
