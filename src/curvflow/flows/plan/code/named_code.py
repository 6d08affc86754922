"""Code that the parameters of a node name: modules, functions, models.

Functions are checked to be there before a run. Nothing is imported for it: a module is
located by Python's own finders, and its names are read from its text.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from curvflow.errors import nearest
from curvflow.flows.plan.code.modules import ON_IMPORT, read_module
from curvflow.flows.plan.code.sources import is_typed
from curvflow.schemas.kind import Kind
from curvflow.schemas.nodes import Label
from curvflow.schemas.params import Params
from curvflow.schemas.study.study import Stage
from curvflow.schemas.study.yaml_source import Path as KeyPath

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


def called(params: Params) -> Iterator[tuple[KeyPath, str]]:
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


def _models(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Params]]:
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


# A module that uses one of these may have names that its text does not show.
_HIDDEN = frozenset(
    {"__getattr__", "exec", "globals", "locals", "setattr", "sys", "vars"}
)


class NamedCode:
    """The functions that the parameters of a study name, each looked for once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._faults: dict[str, tuple[str, str] | None] = {}

    def seek(self, stage: Stage, params: Params, labels: Mapping[str, Label]) -> None:
        """Check from text alone that the functions of parameters can be imported.

        Raises:
            StudyError: there is no such module, or its text has no such name.
        """
        for path, name in called(params):
            if name not in self._faults:
                self._faults[name] = self._fault(*name.split(":"))
            if fault := self._faults[name]:
                raise stage.error(path, *fault, labels=labels)

    def _fault(self, module: str, function: str) -> tuple[str, str] | None:
        """Return the expectation and the remedy; None if nothing is wrong."""
        spec = None if is_typed(module) else self._spec(module)
        if spec is None:
            return None if self._is_elsewhere(module) else _no_module(module)
        origin = Path(spec.origin or "")
        # What is compiled, or in an archive, cannot be looked into here.
        if origin.suffix != ".py" or not origin.is_file():
            return None
        try:
            text = origin.read_bytes()
            names = read_module(module, text, is_package=spec.parent == module)
        except SyntaxError as error:
            reason = f"got a syntax error in line {error.lineno} of {origin}"
            return f"expected a module that can be imported, {reason}", ""
        except OSError as error:
            reason = f"got {origin} ({error.strerror})"
            return f"expected a module that can be read, {reason}", ""
        known = {*names.parts, *names.aliases, *names.lazy} - {ON_IMPORT}
        bound = known | _bound(text)
        if names.stars or function in bound or _HIDDEN & bound:
            return None
        message = f"expected a function of module '{module}', got '{function}'"
        return message, nearest(function, known)

    def _spec(self, module: str) -> ModuleSpec | None:
        places: list[str] | None = [str(self._folder), *sys.path]
        spec, name = None, ""
        for part in module.split("."):
            name = f"{name}.{part}".lstrip(".")
            spec = PathFinder.find_spec(name, places) if places else None
            places = spec.submodule_search_locations if spec else None
        return spec

    def _is_elsewhere(self, module: str) -> bool:
        """Return whether a module may come from a place without files."""
        top = module.partition(".")[0]
        if module in sys.modules:
            return True
        return self._spec(top) is None and (
            top in sys.modules or find_spec(top) is not None
        )


def _no_module(module: str) -> tuple[str, str]:
    return (
        f"expected a module that can be imported, got '{module}'",
        f"Put {module.replace('.', '/')}.py next to the study file, or install it.",
    )


def _bound(text: bytes) -> set[str]:
    """Return the names that a text uses or declares anywhere, also within functions."""
    nodes = list(ast.walk(ast.parse(text)))
    declared = (node.names for node in nodes if isinstance(node, ast.Global))
    used = (node.id for node in nodes if isinstance(node, ast.Name))
    return {*used, *chain.from_iterable(declared)}
