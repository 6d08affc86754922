"""Names of one module and their meanings, read from its text.

A name's definition is every statement of the module that binds or changes it: a
function, a class, an assignment, `NAME["x"] = f`, `NAME.update(...)`. What a module
does beside that when it is imported stands under the name `<module>`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from curvflow.flows.plan.code.bindings import Import, bindings, imports, origin

ON_IMPORT = "<module>"


@dataclass(frozen=True, slots=True)
class Part:
    """A statement of a definition.

    Attributes:
        statement: an import is cut down to the name defined.
        guards: conditions that it stands under.
    """

    statement: ast.stmt
    guards: tuple[ast.expr, ...] = ()


@dataclass
class Module:
    """The names of one module.

    Attributes:
        name: full dotted name.
        package: what its relative imports start from.
        parts: the definition of each name; an alias has none.
        aliases: names that are one import and nothing else.
        stars: modules whose names are all taken.
        lazy: what a module with `__getattr__` says, for type checkers, that it gives.
    """

    name: str
    package: str
    parts: dict[str, list[Part]] = field(default_factory=dict)
    aliases: dict[str, Import] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    lazy: dict[str, Import] = field(default_factory=dict)


def read_module(name: str, text: bytes, *, is_package: bool) -> Module:
    """Read the names of a module from its source; SyntaxError if it is not Python."""
    package = name if is_package else name.rpartition(".")[0]
    reader = _Reader(Module(name, package))
    reader.read(ast.parse(text).body, ())
    return reader.finished()


class _Reader:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.changes: list[tuple[str, Part]] = []

    def read(
        self, statements: Sequence[ast.stmt], guards: tuple[ast.expr, ...]
    ) -> None:
        for statement in statements:
            if isinstance(statement, ast.If):
                self._choice(statement, guards)
            elif isinstance(statement, ast.Try | ast.TryStar):
                self._attempt(statement, guards)
            elif isinstance(statement, ast.With):
                entered = tuple(item.context_expr for item in statement.items)
                self.read(statement.body, (*guards, *entered))
            elif isinstance(statement, ast.Import | ast.ImportFrom):
                self._imports(statement, guards)
            else:
                self._other(statement, guards)

    def finished(self) -> Module:
        module = self.module
        for name, part in self.changes:
            known = module.parts.get(name, [])
            is_defined = any(not _is_import(part.statement) for part in known)
            module.parts.setdefault(name if is_defined else ON_IMPORT, []).append(part)
        for name, parts in list(module.parts.items()):
            targets = {t for p in parts for t in self._targets(name, p.statement)}
            if len(targets) == 1 and all(_is_import(p.statement) for p in parts):
                module.aliases[name] = targets.pop()
                del module.parts[name]
            else:
                parts.sort(key=lambda part: part.statement.lineno)
        if "__getattr__" not in module.parts:
            module.lazy.clear()
        module.parts.pop("__all__", None)
        return module

    def _targets(self, name: str, statement: ast.stmt) -> Iterator[Import]:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield from (t for _, t in imports(statement, self.module.package))

    def _add(self, name: str, part: Part) -> None:
        self.module.parts.setdefault(name, []).append(part)

    def _choice(self, statement: ast.If, guards: tuple[ast.expr, ...]) -> None:
        if is_for_checkers(statement.test):
            inner = [s for s in statement.body if isinstance(s, ast.ImportFrom)]
            for lazy in inner:
                self.module.lazy.update(imports(lazy, self.module.package))
            self.read(statement.orelse, guards)
        elif not _is_main(statement.test):
            self.read(statement.body, (*guards, statement.test))
            opposite = ast.UnaryOp(ast.Not(), statement.test)
            self.read(statement.orelse, (*guards, opposite))

    def _attempt(
        self, statement: ast.Try | ast.TryStar, guards: tuple[ast.expr, ...]
    ) -> None:
        self.read(statement.body, guards)
        for handler in statement.handlers:
            caught = (handler.type,) if handler.type else ()
            self.read(handler.body, (*guards, *caught))
        self.read([*statement.orelse, *statement.finalbody], guards)

    def _imports(
        self, node: ast.Import | ast.ImportFrom, guards: tuple[ast.expr, ...]
    ) -> None:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            return
        for alias in node.names:
            if isinstance(node, ast.Import):
                single: ast.Import | ast.ImportFrom = ast.Import([alias])
            elif alias.name == "*":
                self.module.stars.append(origin(node, self.module.package))
                continue
            else:
                single = ast.ImportFrom(node.module, [alias], node.level)
            single.lineno = node.lineno
            for name, _ in imports(single, self.module.package):
                self._add(name, Part(single, guards))

    def _other(self, statement: ast.stmt, guards: tuple[ast.expr, ...]) -> None:
        if _is_idle(statement):
            return
        part = Part(statement, guards)
        names = sorted(bindings([statement], self.module.package).assigned)
        for name in names:
            self._add(name, part)
        changed = [] if names else sorted(set(_changed(statement)))
        self.changes += [(name, part) for name in changed or ([] if names else [""])]


def _changed(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        if isinstance(statement.value.func, ast.Attribute):
            yield from _root(statement.value.func)
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(
            node.ctx, ast.Load
        ):
            yield from _root(node)


def _root(node: ast.expr) -> Iterator[str]:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id


def _is_import(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Import | ast.ImportFrom)


def _is_idle(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.AnnAssign):
        return statement.value is None
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Pass)


def is_for_checkers(test: ast.expr) -> bool:
    """Return whether a condition is TYPE_CHECKING."""
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name == "TYPE_CHECKING"


def _is_main(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id == "__name__"
    )
