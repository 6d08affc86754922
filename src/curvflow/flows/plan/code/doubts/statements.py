"""Statements of a module, judged in their order."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

from curvflow.flows.plan.code.doubts.definitions import DefinitionJudge
from curvflow.flows.plan.code.doubts.expressions import DoubtError
from curvflow.flows.plan.code.modules import (
    ON_IMPORT,
    Module,
    bindings,
    imports,
    is_main,
)
from curvflow.flows.plan.code.normal import Names
from curvflow.flows.plan.code.syntax import (
    makes_table,
    names_alone,
    names_in,
    run_on_import,
    that_run,
)

_HOOKS = frozenset({"__getattr__", "__dir__"})  # of a module


def doubt_of(names: Names, module: Module, *, alone: bool = False) -> str:
    """Return the first doubt about a module, with its line; empty if there is none.

    Of a module `alone` those of others, whose variables it uses, are no reason.
    """

    def fills(asking: Module, home: Module) -> bool:
        if alone or home.name == asking.name:
            return False
        return bool(names.answer(home.name, lambda: doubt_of(names, home, alone=True)))

    try:
        _Judge(names, module, fills).judge()
    except DoubtError as doubt:
        return str(doubt)
    return ""


class _Judge(DefinitionJudge):
    def judge(self) -> None:
        for statement in self._module.body:
            self._statement(statement)
        self._bound_once(self._module.body)
        for statement in self._module.body:
            for node in run_on_import(statement):
                self._hiding(node)

    # statements that run on import

    def _statement(self, statement: ast.stmt) -> None:
        check = _STATEMENTS.get(type(statement))
        if check is None:
            word = type(statement).__name__
            raise DoubtError(statement, f"`{word}` at module level")
        check(self, statement)

    def _definition(self, statement: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        # Names that it says for type checkers it gives are followed where they lead.
        if statement.name in _HOOKS and not self._module.lazy:
            raise DoubtError(statement, f"a module's {statement.name}")
        self._function(statement)

    def _import(self, statement: ast.Import | ast.ImportFrom | ast.Pass) -> None:
        names = [] if isinstance(statement, ast.Pass) else statement.names
        if any(alias.name == "*" for alias in names) and not self._is_known(statement):
            raise DoubtError(statement, "import *")
        for _, target in (
            []
            if isinstance(statement, ast.Pass)
            else imports(statement, self._module.package)
        ):
            if target.member:
                self._hooked(statement, self._names.imported(target, ()))

    def _is_known(self, star: ast.stmt) -> bool:
        """Return whether `import *` binds exactly what another module's text binds.

        And nothing that is bound here too. Packages have more names than their text.
        """
        if len(self._module.stars) != 1 or star not in self._module.body:
            return False
        other = self._names.module(self._module.stars[0])
        if other is None or other.stars or other.name == other.package:
            return False
        theirs = {*other.parts, *other.aliases} - {ON_IMPORT}
        ours = {*self._module.parts, *self._module.aliases}
        names_itself = any("__all__" in names_in(s) for s in other.body)
        return not (theirs & ours or names_itself or doubt_of(self._names, other))

    def _expression(self, statement: ast.Expr) -> None:
        self._counts = True
        self._runs(statement.value)
        self._counts = False

    def _choice(self, statement: ast.If) -> None:
        if self._module.is_for_checkers(statement.test):
            for other in statement.orelse:
                self._statement(other)
        elif statement.orelse or not is_main(statement.test):
            raise DoubtError(statement, "a condition at module level")

    def _assignment(self, statement: ast.Assign | ast.AnnAssign) -> None:
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        else:
            targets = [statement.target]
            self._annotation(statement.annotation)
        if statement.value is not None:
            self._runs(statement.value)
            if not all(isinstance(target, ast.Name) for target in targets):
                self._operates(statement.value)  # it is taken apart
        for target in targets:
            if names_alone(target):
                if _HOOKS & set(names_in(target)):
                    raise DoubtError(statement, "a module's hook is assigned")
            elif len(targets) > 1 or not self._enters(target):
                raise DoubtError(statement, "an assignment to a part of something")

    def _enters(self, target: ast.expr) -> bool:
        """Return whether a target is an entry of a table made for its name alone."""
        root = target.value if isinstance(target, ast.Subscript) else None
        if not isinstance(target, ast.Subscript) or not isinstance(root, ast.Name):
            return False
        self._runs(target.slice)
        made = [
            statement
            for statement in self._module.body
            if root.id in bindings([statement], "").assigned
        ]
        return len(made) == 1 and makes_table(made[0])

    def _attempt(self, statement: ast.Try) -> None:
        handled = [s for handler in statement.handlers for s in handler.body]
        simple: set[str] = set()  # bound to what cannot fail
        for inner in (*statement.body, *handled, *statement.orelse):
            is_plain = isinstance(inner, ast.Import | ast.ImportFrom | ast.Pass) or (
                isinstance(inner, ast.Assign)
                and all(isinstance(target, ast.Name) for target in inner.targets)
                and self._cannot_fail(inner.value, simple)
            )
            if isinstance(inner, ast.Assign):
                simple |= {
                    name for target in inner.targets for name in names_in(target)
                }
            if not is_plain:
                raise DoubtError(inner, "`Try` around more than imports")
            self._statement(inner)
        if statement.finalbody:
            raise DoubtError(statement, "`Try` with `finally`")

    def _cannot_fail(self, value: ast.expr, simple: Collection[str]) -> bool:
        """Return whether a value is of constants, simple names and variables alone."""
        match value:
            case ast.Constant():
                return True
            case ast.Name(id=name):
                return name in simple
            case ast.Compare(left=left, ops=ops, comparators=others):
                equal = ast.Eq | ast.NotEq | ast.Is | ast.IsNot
                parts = [left, *others]
                is_safe = all(isinstance(operator, equal) for operator in ops)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                parts, is_safe = [test, body, orelse], True
            case ast.Call(args=args, keywords=[]):
                text = self._meaning(value.func).text
                is_safe = text in ("os.environ.get", "os.getenv") and isinstance(
                    args[0] if args else None, ast.Constant
                )
                parts = args
            case _:
                return False
        return is_safe and all(self._cannot_fail(part, simple) for part in parts)

    def _bound_once(self, statements: Sequence[ast.stmt]) -> None:
        """Refuse names that several statements bind; those of a `try` are one."""
        count: Counter[str] = Counter()
        for statement in that_run(statements):
            if self._is_overload(statement):
                continue
            bound = bindings([statement], self._module.package)
            # `import a.b` and `import a.c` bind the same package.
            packages = {
                name
                for name, targets in bound.imported.items()
                if all(target.member is None for target in targets)
            }
            for name in {*bound.assigned, *bound.imported} - packages:
                count[name] += 1
                if count[name] > 1:
                    raise DoubtError(statement, f"{name} is bound again")

    def _is_overload(self, statement: ast.stmt) -> bool:
        decorators = getattr(statement, "decorator_list", [])
        return any(self._meaning(d).text == "typing.overload" for d in decorators)


_STATEMENTS: dict[type[ast.stmt], Callable[[_Judge, Any], None]] = {
    ast.FunctionDef: _Judge._definition,
    ast.AsyncFunctionDef: _Judge._definition,
    ast.ClassDef: _Judge._class,
    ast.Import: _Judge._import,
    ast.ImportFrom: _Judge._import,
    ast.Pass: _Judge._import,
    ast.Assign: _Judge._assignment,
    ast.AnnAssign: _Judge._assignment,
    ast.Expr: _Judge._expression,
    ast.If: _Judge._choice,
    ast.Try: _Judge._attempt,
}
