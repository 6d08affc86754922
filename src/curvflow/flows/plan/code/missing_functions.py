"""Refuse functions of modules that parameters name and that are not there.

Nothing is imported for it: a module is found by Python's own finders, and its names are
read from its text.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

from curvflow.errors import nearest
from curvflow.flows.plan.code.cells import is_typed
from curvflow.flows.plan.code.loaded import called
from curvflow.flows.plan.code.modules import ON_IMPORT, read_module
from curvflow.schemas.nodes import Label
from curvflow.schemas.params import Params
from curvflow.schemas.study.study import Stage

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
