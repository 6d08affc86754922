"""The text of a notebook, or of a prompt: of a main module that has no file.

Cells are run in any order, and again once edited, so one after another they are no text
of a module. It is put together from what the names mean at this moment:

- a function or class is the statement that defined it, in its cell, with the values
  that it took then: defaults, attributes of a class, what it closes over;
- plain data, arrays and tensors are their values, wherever these came from;
- what is imported is an import;
- anything else is the statement that bound the name last.

Cells are found where tracebacks find them, in `linecache`. A function that stands in
none of them, as under `%%time`, after `exec` or at Python's prompt before 3.13, is told
by its bytecode and the names in it.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from itertools import chain
from types import CodeType, FunctionType, ModuleType

import numpy as np

from curvflow.flows.plan.code.bindings import bindings

MAIN = "__main__"
# Names that Python and IPython add, such as earlier inputs and outputs.
_HISTORY = re.compile(r"_+\d*|_i+\d*|_[iod]h|In|Out|__\w+__")
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_NESTED = (list, tuple, dict, set, frozenset)
_LONGEST = 500  # characters of a value that are kept as they are


def is_typed(name: str) -> bool:
    """Return whether a module was typed: it is the main module and has no file."""
    return name == MAIN and not getattr(sys.modules.get(MAIN), "__file__", None)


def typed_text() -> bytes:
    """Return the text of the main module, put together from what was typed."""
    module = sys.modules[MAIN]
    names = sorted(n for n in vars(module) if not _HISTORY.fullmatch(n))
    # A statement that binds several names is written once.
    texts = dict.fromkeys(_text(module, name) for name in names)
    texts |= dict.fromkeys(filter(None, (_taken(module, name) for name in names)))
    return "\n".join(texts).encode(errors="backslashreplace")


def _text(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    if isinstance(value, ModuleType):
        return f"import {value.__name__} as {name}"
    if (told := _told(value)) is not None:
        return f"{name} = {_short(told)}"
    functions = list(_functions(value))
    cells = ["".join(linecache.getlines(one.__code__.co_filename)) for one in functions]
    if functions and not all(cells):
        return _by_code(module, name, functions)
    if own := _statements(cells[0]).get(name) if cells else "":
        return own
    # As the cell has it, for a library may say otherwise where its functions live.
    if last := next((found[name] for found in _newest() if name in found), ""):
        return last
    home, called = getattr(value, "__module__", ""), getattr(value, "__name__", "")
    is_theirs = home != module.__name__ and _is_importable(home, called)
    return f"from {home} import {called} as {name}" if is_theirs else ""


def _short(told: str) -> str:
    digest = sha256(told.encode(errors="backslashreplace")).hexdigest()
    return told if len(told) <= _LONGEST else repr(digest)


def _told(value: object, depth: int = 10) -> str | None:
    """Write plain data, arrays and tensors as a literal; None for anything else."""
    if type(value) in _PLAIN:
        return repr(value)
    if type(value) not in _NESTED or not isinstance(value, Collection):
        return _array(value)
    flat = chain(*value.items()) if isinstance(value, dict) else value
    inner = [_told(one, depth - 1) if depth else None for one in flat]
    told = [one for one in inner if one is not None]
    if len(told) < len(inner):
        return None
    if isinstance(value, dict):
        pairs = zip(told[::2], told[1::2], strict=True)
        return f"{{{', '.join(f'{key}: {one}' for key, one in pairs)}}}"
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}([{', '.join(sorted(told))}])"
    joined = ", ".join(told)
    if isinstance(value, tuple):
        return f"({joined},)" if len(told) == 1 else f"({joined})"
    return f"[{joined}]"


def _array(value: object) -> str | None:
    """Write an array, a number of NumPy or a tensor as its digest."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        try:
            flat = value.detach().cpu().contiguous().reshape(-1)
            content = flat.view(torch.uint8).numpy().tobytes()
        except (RuntimeError, TypeError, NotImplementedError):  # such as a sparse one
            return None
        kind, shape = str(value.dtype), tuple(value.shape)
    elif isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        kind, shape, content = str(value.dtype), value.shape, value.tobytes()
    else:
        return None
    return repr(f"{kind} {shape} {sha256(content).hexdigest()}")


def _taken(module: ModuleType, name: str) -> str:
    """Write the values that a function or class took at its definition."""
    value = getattr(module, name)
    taken: list[str] = []
    if isinstance(value, type) and value.__module__ == MAIN:
        inner = {k: _told(v) for k, v in vars(value).items() if k[:2] != "__"}
        taken += [f"{key}={told}" for key, told in inner.items() if told is not None]
    for one in _functions(value):
        taken += _given(one)
    bare = getattr(value, "__func__", value)
    if isinstance(bare, FunctionType) and bare.__globals__ is vars(module):
        taken += _given(bare)  # of a decorator too
    return f"{name} = {_short(repr(taken))}" if taken else ""


def _is_importable(home: object, called: object) -> bool:
    names = f"{home}.{called}".split(".")
    return isinstance(called, str) and all(name.isidentifier() for name in names)


def _functions(value: object) -> Iterator[FunctionType]:
    """Find the functions of the main module that a function or a class is made of."""
    inner = list(vars(value).values()) if isinstance(value, type) else [value]
    for one in inner:
        bare = one.fget if isinstance(one, property) else getattr(one, "__func__", one)
        function = inspect.unwrap(bare) if callable(bare) else bare
        if isinstance(function, FunctionType) and function.__module__ == MAIN:
            yield function


def _by_code(module: ModuleType, name: str, functions: Sequence[FunctionType]) -> str:
    """Write a function with the bytecode's content and names."""
    pending, called = [one.__code__ for one in functions], set[str]()
    told = [repr(_given(one)) for one in functions]
    while pending:
        code = pending.pop()
        inner = [one for one in code.co_consts if isinstance(one, CodeType)]
        pending += inner
        called.update(code.co_names)
        others = sorted(repr(one) for one in code.co_consts if one not in inner)
        told.append(repr((code.co_code, others, code.co_names)))
    digest = sha256("\n".join(sorted(told)).encode(errors="backslashreplace"))
    names = sorted(called & vars(module).keys() - {name})
    return f"def {name}():\n    return {', '.join([repr(digest.hexdigest()), *names])}"


def _given(function: FunctionType, depth: int = 5) -> list[str]:
    """Return the plain data among a function's defaults and closed-over values."""
    given: list[object] = [*(function.__defaults__ or ())]
    given += chain(*(function.__kwdefaults__ or {}).items())
    for one in function.__closure__ or ():
        with suppress(ValueError):  # it holds nothing yet
            given.append(one.cell_contents)
    told = [found for one in given if (found := _told(one)) is not None]
    for held in given if depth else ():
        if isinstance(held, FunctionType) and held.__globals__ is function.__globals__:
            told += _given(held, depth - 1)
    return told


def _newest() -> Iterator[Mapping[str, str]]:
    """Yield the names that cells bind, the last cell first."""
    history = getattr(sys.modules[MAIN], "In", None)
    if isinstance(history, list):  # of IPython, in order of execution
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
            earlier = f"{found[name]}\n" if name in found else ""
            found[name] = f"{earlier}{ast.unparse(statement)}"
    return found
