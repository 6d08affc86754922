"""Meanings of names: definitions of the project, modules, or names outside."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from curvflow.flows.plan.code.bindings import Import
from curvflow.flows.plan.code.modules import Module
from curvflow.flows.plan.code.sources import Sources


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of a name or a dotted name.

    Attributes:
        text: full name, the same however it was imported.
        definition: `module:name` if the project defines it.
        module: the module, if it is one of the project.
    """

    text: str
    definition: str | None = None
    module: Module | None = None


def dotted(node: ast.expr) -> tuple[list[str], ast.expr]:
    """Take an expression `root.a.b` apart into [a, b] and its root."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return names[::-1], node


class Names:
    """The meaning of names in the modules of one project."""

    def __init__(self, sources: Sources, tops: frozenset[str]) -> None:
        self._sources, self._tops = sources, tops
        self._memo: dict[tuple[str, str], Meaning | None] = {}

    def module(self, name: str) -> Module | None:
        """Return a module of the project, or None."""
        return self._sources.module(name, self._tops)

    def of(self, module: Module, name: str, attributes: Sequence[str]) -> Meaning:
        """Return the meaning of a global name of a module, or of an attribute of it.

        That of an unknown name, such as a builtin, is `?` and itself.
        """
        meaning = self._named(module, name) or Meaning(f"?{name}")
        return self._attributes(meaning, attributes)

    def imported(self, target: Import, attributes: Sequence[str]) -> Meaning:
        """Return the meaning of an imported name, as `of` does."""
        return self._attributes(self._import(target), attributes)

    def spelt(self, module: Module, node: ast.expr) -> Meaning:
        """Return the meaning of a dotted name, or of a call of one, in a module."""
        attributes, root = dotted(node.func if isinstance(node, ast.Call) else node)
        if isinstance(root, ast.Name):
            return self.of(module, root.id, attributes)
        return Meaning("?")

    def _attributes(self, meaning: Meaning, attributes: Sequence[str]) -> Meaning:
        for name in attributes:
            if meaning.module is not None:
                meaning = self._member(meaning.module, name)
            else:
                meaning = Meaning(f"{meaning.text}.{name}", meaning.definition)
        return meaning

    def _member(self, module: Module, name: str) -> Meaning:
        if meaning := self._named(module, name):
            return meaning
        inner = self.module(f"{module.name}.{name}")
        text = f"{module.name}.{name}"
        return Meaning(text, module=inner)

    def _import(self, target: Import) -> Meaning:
        module = self.module(target.module)
        if module is None:
            parts = [target.module, target.member] if target.member else [target.module]
            return Meaning(".".join(parts))
        if target.member is None:
            return Meaning(module.name, module=module)
        return self._member(module, target.member)

    def _named(self, module: Module, name: str) -> Meaning | None:
        key = module.name, name
        if key not in self._memo:
            self._memo[key] = None  # modules that import each other end here
            self._memo[key] = self._look_up(module, name)
        return self._memo[key]

    def _look_up(self, module: Module, name: str) -> Meaning | None:
        if target := module.aliases.get(name):
            return self._import(target)
        if name in module.parts:
            full = f"{module.name}:{name}"
            return Meaning(full, full)
        for star in module.stars:
            other = self.module(star)
            meaning = self._named(other, name) if other else None
            if meaning is not None:
                return meaning
        lazy = module.lazy.get(name)
        return self._import(lazy) if lazy else None
