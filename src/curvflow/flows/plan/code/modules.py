"""Names of one module and their meanings, read from its text, scope by scope.

A name's definition is every statement of the module that binds or changes it: a
function, a class, an assignment, `NAME["x"] = f`, `NAME.update(...)`. What a module
does besides when it is imported stands under the name `<module>`.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

# What type checkers alone believe to be true.
_CHECKING = "TYPE_CHECKING"
_TYPING = ("typing", "typing_extensions")

# Sets of exact types: most of the time here goes into tests of types.
_NAMED = {*FUNCTIONS, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar}
_DECLARING = {ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal}
_BINDING = {ast.Name, ast.MatchMapping, *_NAMED, *_DECLARING}
_CLOSED = {*FUNCTIONS, ast.ClassDef, ast.Lambda, ast.Name, ast.Constant}


@dataclass(frozen=True, slots=True)
class Import:
    """The module, and its member, that an import binds a name to.

    Attributes:
        module: dotted name.
        member: a name in it; None for the module itself.
    """

    module: str
    member: str | None = None


@dataclass(slots=True)
class Bindings:
    """The names that a scope binds.

    Attributes:
        assigned: bound by anything but an import.
        imported: bound by imports, each with all it may mean.
        outside: declared `global`, so of the module.
        enclosing: declared `nonlocal`, so of the function around.
    """

    assigned: set[str] = field(default_factory=set)
    imported: dict[str, set[Import]] = field(default_factory=dict)
    outside: set[str] = field(default_factory=set)
    enclosing: set[str] = field(default_factory=set)

    def alias(self, name: str) -> Import | None:
        """Return the origin of a name that is imported and not bound otherwise."""
        targets = self.imported.get(name, ())
        if name in self.assigned or len(targets) != 1:
            return None
        return next(iter(targets))


def bindings(nodes: Sequence[ast.AST], package: str) -> Bindings:
    """Collect the names that the statements of one scope, or a lambda's body, bind."""
    result = Bindings()
    for node in _of_scope(nodes):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name, target in imports(node, package):
                result.imported.setdefault(name, set()).add(target)
        elif isinstance(node, ast.Global):
            result.outside.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            result.enclosing.update(node.names)
        elif (bound := _bound(node)) is not None:
            result.assigned.add(bound)
    return result


def _bound(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return None if isinstance(node.ctx, ast.Load) else node.id
    if isinstance(node, ast.MatchMapping):
        return node.rest
    return getattr(node, "name", None)


def _of_scope(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    pending = list(nodes)
    while pending:
        node = pending.pop()
        sort = type(node)
        if sort in _BINDING:
            yield node
        if sort in COMPREHENSIONS:
            # Its variables are its own, but what `:=` binds is the function's.
            pending += [n.target for n in ast.walk(node) if type(n) is ast.NamedExpr]
        elif sort not in _CLOSED:
            for field in node._fields:
                value = getattr(node, field, None)
                if type(value) is list:
                    pending += [child for child in value if isinstance(child, ast.AST)]
                elif isinstance(value, ast.AST):
                    pending.append(value)


def imports(
    node: ast.Import | ast.ImportFrom, package: str
) -> Iterator[tuple[str, Import]]:
    """Yield the names that an import statement binds; none of `from x import *`."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            if alias.name != "*":
                yield (
                    alias.asname or alias.name,
                    Import(origin(node, package), alias.name),
                )
        elif alias.asname:
            yield alias.asname, Import(alias.name)
        else:
            top = alias.name.partition(".")[0]
            yield top, Import(top)


def origin(node: ast.ImportFrom, package: str) -> str:
    """Return the full name of the module that names are taken from."""
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    base = parts[: len(parts) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


@dataclass
class Scope:
    """One function, lambda, comprehension or class.

    Attributes:
        bindings: what it binds.
        fixed: names that others use: parameters, and all names of a class.
        is_class: what a class binds is not seen from the functions in it.
        given: new names by old, in the order met.
    """

    bindings: Bindings
    fixed: Collection[str] = ()
    is_class: bool = False
    given: dict[str, str] = field(default_factory=dict)


class Scopes:
    """A stack of scopes; local names are numbered in the order they are met."""

    def __init__(self, package: str, *, renames: bool) -> None:
        self._package, self._renames = package, renames
        self._stack: list[Scope] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._stack)

    @property
    def in_class(self) -> bool:
        """Return whether the innermost scope is a class."""
        return bool(self._stack) and self._stack[-1].is_class

    @contextmanager
    def entered(
        self,
        nodes: Sequence[ast.AST],
        parameters: Collection[str] = (),
        *,
        is_class: bool = False,
    ) -> Iterator[None]:
        """Enter the scope of some code until the block ends."""
        bound = bindings(nodes, self._package)
        bound.assigned.update(parameters)
        fixed = bound.assigned | set(bound.imported) if is_class else parameters
        self._stack.append(Scope(bound, fixed, is_class))
        yield
        self._stack.pop()

    def find(self, name: str) -> str | Import | None:
        """Return the meaning of a name in the scopes entered; None if none binds it.

        A local name has a number, a parameter itself, and an imported name its origin.
        """
        innermost = True
        for scope in reversed(self._stack):
            if not scope.is_class or innermost:
                if name in scope.bindings.outside:
                    return None
                if meaning := self._in(scope, name):
                    return meaning
            innermost = False
        return None

    def _in(self, scope: Scope, name: str) -> str | Import | None:
        bound = scope.bindings
        if name in bound.enclosing:
            return None
        if alias := bound.alias(name):
            return alias
        if name in scope.fixed:
            return name
        if name not in bound.assigned and name not in bound.imported:
            return None
        if name not in scope.given:
            scope.given[name] = f"%{self._count}" if self._renames else name
            self._count += 1
        return scope.given[name]


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
        checking: conditions that are true for type checkers alone.
        lazy: what a module with `__getattr__` says, for type checkers, that it gives.
        body: all of its statements.
    """

    name: str
    package: str
    parts: dict[str, list[Part]] = field(default_factory=dict)
    aliases: dict[str, Import] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    checking: frozenset[str] = frozenset()
    lazy: dict[str, Import] = field(default_factory=dict)
    body: list[ast.stmt] = field(default_factory=list)

    def is_for_checkers(self, condition: ast.expr) -> bool:
        """Return whether a condition is true for type checkers alone."""
        return bool(self.checking) and ast.unparse(condition) in self.checking


def read_module(name: str, text: bytes, *, is_package: bool) -> Module:
    """Read the names of a module from its source; SyntaxError if it is not Python."""
    package = name if is_package else name.rpartition(".")[0]
    body = ast.parse(text).body
    checking = _for_checkers(body, package) if _CHECKING.encode() in text else ()
    reader = _Reader(Module(name, package, checking=frozenset(checking), body=body))
    reader.read(body, ())
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
        if self.module.is_for_checkers(statement.test):
            inner = [s for s in statement.body if isinstance(s, ast.ImportFrom)]
            for lazy in inner:
                self.module.lazy.update(imports(lazy, self.module.package))
            self.read(statement.orelse, guards)
        elif not is_main(statement.test):
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


def _for_checkers(body: Sequence[ast.stmt], package: str) -> frozenset[str]:
    """Return the conditions, as text, that are true for type checkers alone.

    They are what typing has, by whatever name, and one of that name that is False.
    """
    imported = {_CHECKING: set[Import](), **bindings(body, package).imported}
    nodes = [node for statement in body for node in ast.walk(statement)]
    stored = Counter(
        node.id
        for node in nodes
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    )
    assignments = (node for node in nodes if isinstance(node, ast.Assign))
    stored[_CHECKING] -= sum(
        ast.unparse(node) == f"{_CHECKING} = False" for node in assignments
    )
    guarded = set()
    for name, targets in imported.items():
        if not stored[name] and targets <= {Import(m, _CHECKING) for m in _TYPING}:
            guarded.add(name)
        if not stored[name] and targets <= {Import(module) for module in _TYPING}:
            guarded.add(f"{name}.{_CHECKING}")
    return frozenset(guarded)


def is_main(test: ast.expr) -> bool:
    """Return whether a condition is `__name__ == "__main__"`."""
    return ast.unparse(test) in ("__name__ == '__main__'", "'__main__' == __name__")
