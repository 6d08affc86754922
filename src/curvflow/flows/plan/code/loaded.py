"""Code that the parameters of a node name: modules, functions, models."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin

from curvflow.schemas.kind import Kind
from curvflow.schemas.nodes import Label
from curvflow.schemas.params import Params
from curvflow.schemas.study.yaml_source import Path

_PLAIN = (str, int, float, bool, type(None))


@dataclass(frozen=True, slots=True)
class Loaded:
    """Code that parameters name.

    Attributes:
        modules: run as a whole.
        functions: of the user's own, `module:function`.
        models: classes of parameters, whose methods run; `module:Class`.
    """

    modules: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()

    def __or__(self, other: Loaded) -> Loaded:
        return Loaded(
            self.modules | other.modules,
            self.functions | other.functions,
            self.models | other.models,
        )


def loaded(kind: Kind, params: Params) -> Loaded:
    """Return the code that the parameters of a node name."""
    return _named(kind, params, kind.loads, params)


def carried(kind: Kind, params: Params) -> Loaded:
    """Return the part that runs again where the node's result is taken as Weights."""
    carried_code = Loaded()
    for subtree in kind.carries:
        inner = [path for path in kind.loads if f"{path}.".startswith(f"{subtree}.")]
        carried_code |= _named(kind, params, inner, _at(params, subtree))
    return carried_code


def signature(kind: Kind, params: Params) -> Hashable:
    """Return the parameters that `loaded` and `carried` depend on; most are alike."""
    shape: list[object] = [kind.name, kind.home]
    shape += [_at(params, path) for path in kind.loads]
    pending: list[tuple[str, Any]] = [("", params)]
    while pending:
        name, value = pending.pop()
        if isinstance(value, Params):
            inner = type(value)
            shape += (name, inner, _called(value))
            pending += [(n, getattr(value, n)) for n in _fields_with_more(inner)]
        elif isinstance(value, dict):
            pending += [(name, v) for v in value.values()]
        elif isinstance(value, tuple | list):
            pending += [(name, v) for v in value]
    return tuple(shape)


def called(params: Params) -> Iterator[tuple[Path, str]]:
    """Return the functions and classes that parameters name, each with its path."""
    for path, model in _models(params):
        if name := _called(model):
            yield (*path, model.names_code_in), name


def _named(kind: Kind, params: Params, paths: Collection[str], start: object) -> Loaded:
    models = [model for _, model in _models(start)]
    return Loaded(
        frozenset(f"{kind.loads[p]}.{_at(params, p) or 'factory'}" for p in paths),
        frozenset(filter(None, map(_called, models))),
        frozenset(f"{type(m).__module__}:{type(m).__qualname__}" for m in models),
    )


def _called(params: Params) -> str:
    """Return the function or class that parameters name; empty if none."""
    name = params.names_code_in
    return str(getattr(params, name)) if name else ""


def _at(value: object, path: str) -> object:
    for name in _steps(path):
        value = getattr(value, name, None)
    return value


@cache
def _steps(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))


def _models(value: object, path: Path = ()) -> Iterator[tuple[Path, Params]]:
    inner: Iterable[tuple[Label, object]] = ()
    if isinstance(value, Params):
        yield path, value
        inner = ((n, getattr(value, n)) for n in _fields_with_more(type(value)))
    elif isinstance(value, tuple | list):
        inner = enumerate(value)
    elif isinstance(value, dict):
        inner = value.items()
    for key, item in inner:
        yield from _models(item, (*path, key))


@cache
def _fields_with_more(model: type[Params]) -> tuple[str, ...]:
    fields = model.model_fields
    return tuple(n for n, field in fields.items() if _holds_more(field.annotation))


def _holds_more(annotation: object) -> bool:
    if annotation in _PLAIN or annotation is Ellipsis or annotation is None:
        return False
    arguments = get_args(annotation)
    if get_origin(annotation) is Literal:
        return False
    if not arguments:
        return True
    return any(_holds_more(argument) for argument in arguments)
