"""The text of a notebook, or of a prompt: of a main module that has no file.

Cells are run in any order, and again once edited, so one after another they are no text
of a module. It is put together from what the names mean at this moment:

- a function or class is the statement that defined it, in its cell;
- plain data and arrays are their values, wherever these came from;
- what is imported is an import;
- anything else is the statement that bound the name last.

Cells are found where tracebacks find them, in `linecache`. What stands in none of them,
as after `exec` or at Python's prompt before 3.13, is left out.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from types import FunctionType, ModuleType

import numpy as np

from curvflow.flows.code.bindings import bindings

MAIN = "__main__"
# What Python and IPython put among the names, such as earlier inputs and outputs.
_HISTORY = re.compile(r"_+\d*|_i+\d*|_[iod]h|In|Out|__\w+__")
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_LONGEST = 500  # characters of a value that are kept as they are


def is_typed(name: str) -> bool:
    """Tell whether a module was typed, in a notebook or at a prompt.

    Args:
        name: of the module.

    Returns:
        Whether it is the main module, and that has no file.
    """
    return name == MAIN and not getattr(sys.modules.get(MAIN), "__file__", None)


def typed_text() -> bytes:
    """Return the text of the main module, put together from what was typed."""
    module = sys.modules[MAIN]
    names = sorted(n for n in vars(module) if not _HISTORY.fullmatch(n))
    # A statement that binds several names is written once.
    texts = dict.fromkeys(_text(module, name) for name in names)
    return "\n".join(texts).encode(errors="backslashreplace")


def _text(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    if isinstance(value, ModuleType):
        return f"import {value.__name__} as {name}"
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        digest = sha256(value.tobytes()).hexdigest()
        return f"{name} = {f'{value.dtype} {value.shape} {digest}'!r}"
    if _is_plain(value):
        told = repr(value)
        is_short = len(told) <= _LONGEST
        digest = sha256(told.encode(errors="backslashreplace")).hexdigest()
        return f"{name} = {told if is_short else repr(digest)}"
    if own := _statements(_cell_of(value)).get(name):
        return own
    # As the cell has it, for a library may say otherwise where its functions live.
    if last := next((found[name] for found in _newest() if name in found), ""):
        return last
    home, called = getattr(value, "__module__", ""), getattr(value, "__name__", "")
    is_theirs = home != module.__name__ and _is_importable(home, called)
    return f"from {home} import {called} as {name}" if is_theirs else ""


def _is_plain(value: object) -> bool:
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))  # type: ignore[call-overload] # it is iterable
    if type(value) is dict:
        return all(_is_plain(k) and _is_plain(v) for k, v in value.items())
    return type(value) in _PLAIN


def _is_importable(home: object, called: object) -> bool:
    names = f"{home}.{called}".split(".")
    return isinstance(called, str) and all(name.isidentifier() for name in names)


def _cell_of(value: object) -> str:
    """Return the text of the cell that defined a function or a class, if known."""
    inner = list(vars(value).values()) if isinstance(value, type) else [value]
    for one in inner:
        function = inspect.unwrap(getattr(one, "__func__", one))  # type: ignore[arg-type] # whatever it is
        if isinstance(function, FunctionType) and function.__module__ == MAIN:
            return "".join(linecache.getlines(function.__code__.co_filename))
    return ""


def _newest() -> Iterator[Mapping[str, str]]:
    """Yield what cells bind, the last one first."""
    history = getattr(
        sys.modules[MAIN], "In", None
    )  # of IPython, in order of execution
    if isinstance(history, list):
        texts = [text for text in history if isinstance(text, str)]
    else:
        # What is no file has no time of change.
        entries = [one for one in linecache.cache.values() if len(one) > 1]
        texts = ["".join(one[2]) for one in entries if one[1] is None]
    yield from map(_statements, reversed(texts))


@lru_cache(maxsize=1000)
def _statements(text: str) -> Mapping[str, str]:
    """Return the statements of a cell by the names that they bind."""
    found: dict[str, str] = {}
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return found
    for statement in body:
        bound = bindings([statement], "")
        for name in bound.assigned | bound.imported.keys():
            found[name] = "\n".join(
                filter(None, (found.get(name), ast.unparse(statement)))
            )
    return found
