"""The scopes that code is nested in, and what its names are there."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from curvflow.flows.code.bindings import Bindings, Import, bindings


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
        """Start outside of all scopes.

        Args:
            package: what relative imports start from.
            renames: whether local names are replaced by numbers.
        """
        self._package, self._renames = package, renames
        self._stack: list[Scope] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._stack)

    @property
    def in_class(self) -> bool:
        """Whether the innermost scope is a class."""
        return bool(self._stack) and self._stack[-1].is_class

    @contextmanager
    def entered(
        self,
        nodes: Sequence[ast.AST],
        parameters: Collection[str] = (),
        *,
        is_class: bool = False,
    ) -> Iterator[None]:
        """Enter the scope of some code.

        Args:
            nodes: the code.
            parameters: of the function.
            is_class: whether it is the body of a class.
        """
        bound = bindings(nodes, self._package)
        bound.assigned.update(parameters)
        fixed = bound.assigned | set(bound.imported) if is_class else parameters
        self._stack.append(Scope(bound, fixed, is_class))
        yield
        self._stack.pop()

    def find(self, name: str) -> str | Import | None:
        """Say what a name is.

        Args:
            name: as written.

        Returns:
            Its number, or itself for a parameter; what it is imported as; None if no
            scope binds it.
        """
        innermost = True
        for scope in reversed(self._stack):
            if not scope.is_class or innermost:
                if name in scope.bindings.outside:
                    return None
                if found := self._in(scope, name):
                    return found
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
