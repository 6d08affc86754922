"""From a kind and what parameters name to the definitions that run first."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from curvflow.flows.code.loaded import Loaded
from curvflow.flows.code.names import Names
from curvflow.flows.code.normal import COMPUTES
from curvflow.flows.code.reach import Definitions, methods
from curvflow.flows.code.sources import LIBRARIES
from curvflow.schemas.kind import Kind
from curvflow.tasks.registry import home_of

# They act before the key is made, and it shows what they change.
_VALIDATORS = {"pydantic.field_validator", "pydantic.model_validator"}


class Entries:
    """Where following the code of a node starts, in one project."""

    def __init__(self, names: Names, definitions: Definitions) -> None:
        """Remember the project.

        Args:
            names: what names mean in it.
            definitions: what it holds.
        """
        self._names, self._definitions = names, definitions

    def functions(self, kind: Kind) -> tuple[str, ...]:
        """Find the functions that compute a kind.

        Args:
            kind: the user's own, or a built-in one, which has a file in `tasks`.

        Returns:
            Definitions; none if the function has no source file.
        """
        if kind.home:
            return (kind.home,) if self._definitions.of(kind.home) else ()
        return tuple(self._computing(kind.name, home_of(kind.name)))

    def beside(self, found: Loaded) -> tuple[str, ...] | None:
        """Find what runs for a node without being named in its kind's function.

        Args:
            found: what its parameters and those of its networks name.

        Returns:
            Definitions; None if a function has no source file.
        """
        whole = [n for m in sorted(found.modules) for n in self._definitions.whole(m)]
        functions = sorted(
            f for f in found.functions if f.partition(".")[0] not in LIBRARIES
        )
        if not all(self._definitions.of(function) for function in functions):
            return None
        inner = [name for m in sorted(found.models) for name in self._methods(m)]
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
                told = {self._names.spelt(module, d).text for d in decorators}
                if not told & _VALIDATORS:
                    yield f"{model}.{method}"
