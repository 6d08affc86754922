"""Names that a piece of code binds, and the scopes that it is nested in."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

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
