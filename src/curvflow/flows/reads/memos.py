"""States of modules, which show whether a call has left something in them.

A state holds what hangs on the values of a module, as far as Python's collector of
garbage knows it. What cannot be looked into is another in each state, as it may hold
anything.
"""

from __future__ import annotations

import dis
import gc
import sys
from array import array
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import _lru_cache_wrapper, cache
from threading import local
from types import (
    CodeType,
    FunctionType,
    GeneratorType,
    ModuleType,
)
from typing import Any
from zlib import crc32

import numpy as np

from curvflow.flows.reads.places import is_users

MANY = 20_000  # values that are looked into; more may hold anything
SMALL = 1 << 20  # bytes of an array whose content is compared
PLAIN = frozenset({str, int, float, bool, bytes, complex, type(None)})
HAS_REFERENTS = 1 << 14  # Python's flag Py_TPFLAGS_HAVE_GC
# Of locks, open files, generators of numbers and the like, which keep no data.
HARMLESS = ("_thread", "_io", "_random", "_abc", "builtins", "numpy", "torch")
# Libraries whose own objects hang together with all others of theirs.
CLOSED = ("logging", "typing", "curvflow", "importlib", "_frozen_importlib")

State = dict[str, object]  # by name


def state_of(module: ModuleType | None) -> State:
    """Return a state that changes once the names of a module hold something else."""
    values = {} if module is None else dict(vars(module))
    walk = _Walk()
    return {
        name: walk.state(value)
        for name, value in values.items()
        if not name.startswith("__")
    }


def changed_names(before: State, after: State) -> set[str]:
    """Return the names that hold something else."""
    names = before.keys() | after.keys()
    return {name for name in names if before.get(name) != after.get(name)}


class _Walk:
    """A walk through all that hangs on the values of one module."""

    def __init__(self) -> None:
        self._left = MANY
        self._met: dict[int, object] = {}  # so that no number is given twice

    def state(self, value: object) -> object:
        """Return the state of a value with all that hangs on it."""
        states, pending = list[object](), [value]
        while pending:
            value = pending.pop()
            if type(value) in PLAIN:
                states.append(hash(value))
                continue
            states.append(id(value))
            if id(value) in self._met or isinstance(value, ModuleType | CodeType):
                continue
            self._met[id(value)] = value
            self._left -= 1
            if self._left < 0:
                return object()
            content, more = _looked_into(value)
            states.append(content)
            pending += more
        return tuple(states)


def _looked_into(value: Any) -> tuple[object, Iterable[object]]:
    """Return what a value holds by itself, and the values that it holds."""
    if isinstance(value, np.ndarray | bytearray | array):
        return _of_buffer(value)
    if isinstance(value, _lru_cache_wrapper):
        info = value.cache_info()
        return (info.currsize, info.misses), ()
    if isinstance(value, FunctionType):
        return None, _of_function(value)
    if isinstance(value, type):
        attributes = vars(value).items() if is_users(value.__module__) else ()
        return None, [item for name, item in attributes if not name.startswith("__")]
    if isinstance(value, local):
        return None, [vars(value)]
    if isinstance(value, GeneratorType):
        frame = value.gi_frame
        return frame and frame.f_lasti, list(frame.f_locals.values()) if frame else []
    if type(value) in (dict, list, set, tuple, frozenset):
        return _of_container(value)
    return _of_object(value)


def _of_buffer(value: Any) -> tuple[object, Iterable[object]]:
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        return value.shape, value.ravel().tolist()
    data = np.asarray(value)
    return crc32(data.tobytes()) if data.nbytes <= SMALL else data.shape, ()


def _of_container(value: Any) -> tuple[object, Iterable[object]]:
    entries = value.values() if type(value) is dict else value
    if not set(map(type, entries)) <= PLAIN:
        return len(value), list(entries)
    return (len(value), hash(tuple(entries))), ()


def _of_object(value: Any) -> tuple[object, Iterable[object]]:
    kind = type(value)
    top = kind.__module__.partition(".")[0]
    if top in CLOSED:
        return None, ()
    if top == "torch" and hasattr(kind, "_version"):
        with suppress(RuntimeError):  # an inference tensor counts no changes
            return value._version, ()
    if kind.__flags__ & HAS_REFERENTS:
        referents = [item for item in gc.get_referents(value) if item is not kind]
        return None, [*referents, kind] if is_users(kind.__module__) else referents
    if getattr(kind, "__hash__", None) not in (object.__hash__, None):
        return hash(value), ()  # as dates and patterns are told apart
    return None if top in HARMLESS else object(), ()


def _of_function(function: FunctionType) -> list[object]:
    """Return what a function holds; of a library's it is nothing of a user's."""
    if not (function.__closure__ or is_users(function.__module__)):
        return []
    named = (function.__kwdefaults__ or {}).values()
    defaults = (*(function.__defaults__ or ()), *named)
    return [*defaults, *_cells(function), function.__dict__]


def _cells(function: FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not bound yet
            continue


def takes_nothing(module: str, changed: Collection[str]) -> bool:
    """Return whether nothing but what a module reads itself can be in some names of it.

    That is so if no function of it that is no `functools.cache` takes an argument, and
    no other module of a user's shares or names what these names hold.
    """
    values = vars(sys.modules[module])
    memos = [values.get(name) for name in changed]
    if all(_is_memo_of(module, memo) for memo in memos):
        return True  # whose entries are told apart by what is passed
    mine = [f for f in _functions(values.values()) if f.__module__ == module]
    if any(_takes_arguments(function.__code__) for function in mine):
        return False
    others = [name for name in list(sys.modules) if name != module and is_users(name)]
    return not any(_may_touch(other, memos, changed) for other in others)


def _is_memo_of(module: str, value: object) -> bool:
    wrapped = getattr(value, "__wrapped__", None)
    is_memo = isinstance(value, _lru_cache_wrapper)
    return is_memo and getattr(wrapped, "__module__", None) == module


def _takes_arguments(code: CodeType) -> bool:
    flags = 0x04 | 0x08  # *args, **kwargs
    return code.co_argcount + code.co_kwonlyargcount > 0 or code.co_flags & flags != 0


def _may_touch(other: str, values: Collection[object], names: Collection[str]) -> bool:
    members = {id(value) for value in vars(sys.modules[other]).values()}
    if any(id(value) in members for value in values if type(value) not in PLAIN):
        return True
    functions = _functions(vars(sys.modules[other]).values())
    return any(_attributes(f.__code__) & set(names) for f in functions)


def _functions(values: Iterable[object]) -> Iterator[FunctionType]:
    """Yield the functions among some values, in their classes, and in decorators."""
    for value in values:
        value = getattr(value, "__wrapped__", value)
        if isinstance(value, FunctionType):
            yield value
        elif isinstance(value, type) and is_users(value.__module__):
            # To look may add some, as pydantic does.
            members = list(vars(value).values())
            yield from _functions(getattr(item, "__func__", item) for item in members)


@cache
def _attributes(code: CodeType) -> frozenset[str]:
    """Return the attributes of other objects that some code names."""
    attributes = {
        str(step.argval)
        for step in dis.get_instructions(code)
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "IMPORT_FROM")
    }
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return frozenset(attributes.union(*map(_attributes, inner)))
