"""The text of a notebook, or of a prompt: of a main module that has no file.

Cells are run in any order, and again once edited, so one after another they are no text
of a module. It is put together from what the names mean at this moment:

- a function or class is the statement that defined it, in its cell, with the values
  that it took then: defaults, attributes of a class, what it closes over;
- plain data, arrays and tensors are their values, wherever these came from;
- an imported name is an import;
- anything else is the statement that bound the name last.

Cells are found where tracebacks find them, in `linecache`. A function that stands in
none of them, as under `%%time`, after `exec` or at Python's prompt before 3.13, counts
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

from curvflow.flows.plan.code.modules import bindings

MAIN = "__main__"
# Names that Python and IPython add, such as earlier inputs and outputs.
_HISTORY = re.compile(r"_+\d*|_i+\d*|_[iod]h|In|Out|__\w+__")
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_NESTED = (list, tuple, dict, set, frozenset)
_LONGEST = 500  # characters of a value that are kept as they are


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
    if (literal := _literal(value)) is not None:
        return f"{name} = {_short(literal)}"
    functions = list(_functions(value))
    cells = [
        "".join(linecache.getlines(function.__code__.co_filename))
        for function in functions
    ]
    if functions and not all(cells):
        return _by_code(module, name, functions)
    if statement := _statements(cells[0]).get(name) if cells else "":
        return statement
    # As the cell has it, for a library may say otherwise where its functions live.
    if last := next(
        (statements[name] for statements in _newest() if name in statements), ""
    ):
        return last
    home, called = getattr(value, "__module__", ""), getattr(value, "__name__", "")
    is_theirs = home != module.__name__ and _is_importable(home, called)
    return f"from {home} import {called} as {name}" if is_theirs else ""


def _short(literal: str) -> str:
    digest = sha256(literal.encode(errors="backslashreplace")).hexdigest()
    return literal if len(literal) <= _LONGEST else repr(digest)


def _literal(value: object, depth: int = 10) -> str | None:
    """Write plain data, arrays and tensors as a literal; None for anything else."""
    if type(value) in _PLAIN:
        return repr(value)
    if type(value) not in _NESTED or not isinstance(value, Collection):
        return _array(value)
    flat = chain(*value.items()) if isinstance(value, dict) else value
    inner = [_literal(item, depth - 1) if depth else None for item in flat]
    literals = [literal for literal in inner if literal is not None]
    if len(literals) < len(inner):
        return None
    if isinstance(value, dict):
        pairs = zip(literals[::2], literals[1::2], strict=True)
        return f"{{{', '.join(f'{key}: {literal}' for key, literal in pairs)}}}"
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}([{', '.join(sorted(literals))}])"
    joined = ", ".join(literals)
    if isinstance(value, tuple):
        return f"({joined},)" if len(literals) == 1 else f"({joined})"
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
        inner = {k: _literal(v) for k, v in vars(value).items() if k[:2] != "__"}
        taken += [
            f"{key}={literal}" for key, literal in inner.items() if literal is not None
        ]
    for function in _functions(value):
        taken += _given(function)
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
    for member in inner:
        bare = (
            member.fget
            if isinstance(member, property)
            else getattr(member, "__func__", member)
        )
        function = inspect.unwrap(bare) if callable(bare) else bare
        if isinstance(function, FunctionType) and function.__module__ == MAIN:
            yield function


def _by_code(module: ModuleType, name: str, functions: Sequence[FunctionType]) -> str:
    """Write a function with the bytecode's content and names."""
    pending, called = [function.__code__ for function in functions], set[str]()
    parts = [repr(_given(function)) for function in functions]
    while pending:
        code = pending.pop()
        inner = [
            constant for constant in code.co_consts if isinstance(constant, CodeType)
        ]
        pending += inner
        called.update(code.co_names)
        others = sorted(
            repr(constant) for constant in code.co_consts if constant not in inner
        )
        parts.append(repr((code.co_code, others, code.co_names)))
    digest = sha256("\n".join(sorted(parts)).encode(errors="backslashreplace"))
    names = sorted(called & vars(module).keys() - {name})
    return f"def {name}():\n    return {', '.join([repr(digest.hexdigest()), *names])}"


def _given(function: FunctionType, depth: int = 5) -> list[str]:
    """Return the plain data among a function's defaults and closed-over values."""
    given: list[object] = [*(function.__defaults__ or ())]
    given += chain(*(function.__kwdefaults__ or {}).items())
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # it holds nothing yet
            given.append(cell.cell_contents)
    literals = [literal for value in given if (literal := _literal(value)) is not None]
    for held in given if depth else ():
        if isinstance(held, FunctionType) and held.__globals__ is function.__globals__:
            literals += _given(held, depth - 1)
    return literals


def _newest() -> Iterator[Mapping[str, str]]:
    """Yield the names that cells bind, the last cell first."""
    history = getattr(sys.modules[MAIN], "In", None)
    if isinstance(history, list):  # of IPython, in order of execution
        texts = [text for text in history if isinstance(text, str)]
    else:
        # What is no file has no time of change.
        entries = [entry for entry in linecache.cache.values() if len(entry) > 1]
        texts = ["".join(entry[2]) for entry in entries if entry[1] is None]
    yield from map(_statements, reversed(texts))


@lru_cache(maxsize=1000)
def _statements(text: str) -> Mapping[str, str]:
    """Return the statements of a cell by the names that they bind."""
    by_name: dict[str, str] = {}
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return by_name
    for statement in body:
        bound = bindings([statement], "")
        for name in bound.assigned | bound.imported.keys():
            earlier = f"{by_name[name]}\n" if name in by_name else ""
            by_name[name] = f"{earlier}{ast.unparse(statement)}"
    return by_name
