"""Definitions reached from those that run first, and the ways to them."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from curvflow.flows.plan.code.bindings import FUNCTIONS
from curvflow.flows.plan.code.loaded import Loaded
from curvflow.flows.plan.code.modules import ON_IMPORT, Module, Part
from curvflow.flows.plan.code.names import Names
from curvflow.flows.plan.code.normal import COMPUTES, normal_form
from curvflow.flows.plan.code.sources import LIBRARIES, OWN
from curvflow.schemas.kind import Kind
from curvflow.tasks.registry import home_of


@dataclass(frozen=True, slots=True)
class Definition:
    """A function, class, method or constant of the project.

    Attributes:
        digest: of its normal form, 16 hexadecimal digits.
        references: the definitions that it reaches at once.
    """

    digest: str
    references: tuple[str, ...]


class Definitions:
    """The definitions of one project by name: `module:name`, `module:Class.method`."""

    def __init__(self, names: Names, library: Definitions | None = None) -> None:
        self._names, self._library = names, library
        self._memo: dict[str, Definition | None] = {}

    def of(self, name: str) -> Definition | None:
        """Return the definition of this name, if the project has it."""
        if self._library and name.startswith(f"{OWN}."):
            return self._library.of(name)
        if name not in self._memo:
            self._memo[name] = self._read(name)
        return self._memo[name]

    def digest(self, name: str) -> str:
        """Return the digest of a definition that exists."""
        definition = self.of(name)
        assert definition is not None, name
        return definition.digest

    def whole(self, module_name: str) -> tuple[str, ...]:
        """List all definitions of a module; none if the project has no such module."""
        module = self._names.module(module_name)
        return tuple(f"{module_name}:{name}" for name in module.parts) if module else ()

    def reached(
        self, starts: Sequence[str], beside: Sequence[str]
    ) -> dict[str, tuple[str, ...]]:
        """Return each definition reached from some, with a shortest way to it."""
        paths: dict[str, tuple[str, ...]] = {name: (name,) for name in starts}
        paths |= {name: (*starts[:1], name) for name in beside if name not in paths}
        pending = deque(paths)
        while pending:
            name = pending.popleft()
            definition = self.of(name)
            if definition is None:
                del paths[name]
                continue
            for reference in definition.references:
                if reference not in paths:
                    paths[reference] = (*paths[name], reference)
                    pending.append(reference)
        return paths

    def _read(self, name: str) -> Definition | None:
        module_name, _, full = name.partition(":")
        top, _, method = full.partition(".")
        module = self._names.module(module_name)
        parts = module.parts.get(top, []) if module else []
        if module is None or not parts:
            return None
        if method:
            return self._method(module, parts, method)
        form = normal_form(self._names, module, parts, None)
        inner = dict.fromkeys(methods(parts))
        others = [f"{name}.{m}" for m in inner]
        if top != ON_IMPORT and ON_IMPORT in module.parts:
            others.append(f"{module_name}:{ON_IMPORT}")
        return _definition(form.text, (*form.references, *others))

    def _method(
        self, module: Module, parts: Sequence[Part], method: str
    ) -> Definition | None:
        for part in parts:
            cls = part.statement
            if not isinstance(cls, ast.ClassDef) or method not in methods([part]):
                continue
            bodies = [Part(f) for f in _functions(cls) if f.name == method]
            form = normal_form(self._names, module, bodies, cls)
            return _definition(form.text, form.references)
        return None


def methods(parts: Sequence[Part]) -> Mapping[str, ast.FunctionDef]:
    """Return the methods of a class by name; nothing if it is no class."""
    return {
        function.name: function
        for part in parts
        if isinstance(part.statement, ast.ClassDef)
        for function in _functions(part.statement)
    }


def _functions(cls: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    for statement in cls.body:
        if isinstance(statement, FUNCTIONS):
            yield statement  # type: ignore[misc] # an async one has the same fields


def _definition(text: str, references: Sequence[str]) -> Definition:
    return Definition(sha256(text.encode()).hexdigest()[:16], tuple(references))


# They act before the key is made, and it shows what they change.
_VALIDATORS = {"pydantic.field_validator", "pydantic.model_validator"}


class Entries:
    """The definitions that run first for a node, in one project."""

    def __init__(self, names: Names, definitions: Definitions) -> None:
        self._names, self._definitions = names, definitions

    def functions(self, kind: Kind) -> tuple[str, ...]:
        """Return the functions that compute a kind; none without a source file."""
        if kind.home:
            return (kind.home,) if self._definitions.of(kind.home) else ()
        return tuple(self._computing(kind.name, home_of(kind.name)))

    def beside(self, loaded: Loaded) -> tuple[str, ...] | None:
        """Return definitions that run for a node, not named in its kind's function.

        None if a function has no source file.
        """
        whole = [n for m in sorted(loaded.modules) for n in self._definitions.whole(m)]
        functions = sorted(
            f for f in loaded.functions if f.partition(".")[0] not in LIBRARIES
        )
        if not all(self._definitions.of(function) for function in functions):
            return None
        inner = [name for m in sorted(loaded.models) for name in self._methods(m)]
        return (*whole, *functions, *dict.fromkeys(inner))

    def _computing(self, kind: str, home: str) -> Iterator[str]:
        module = self._names.module(home)
        for name, parts in module.parts.items() if module else ():
            for part in parts:
                for decorator in getattr(part.statement, "decorator_list", ()):
                    says = isinstance(decorator, ast.Call) and decorator.args[:1]
                    if (
                        says
                        and getattr(says[0], "value", None) == kind
                        and module is not None
                        and self._names.spelt(module, decorator).text in COMPUTES
                    ):
                        yield f"{home}:{name}"

    def _methods(self, model: str) -> Iterator[str]:
        home, _, name = model.partition(":")
        module = self._names.module(home)
        for part in module.parts.get(name, ()) if module else ():
            if module is None or not isinstance(part.statement, ast.ClassDef):
                continue
            for base in part.statement.bases:
                if inherited := self._names.spelt(module, base).definition:
                    yield from self._methods(inherited)
            for method, function in methods([part]).items():
                decorators = function.decorator_list
                texts = {self._names.spelt(module, d).text for d in decorators}
                if not texts & _VALIDATORS:
                    yield f"{model}.{method}"
