"""Functions and classes of a module, and what defining them may change."""

from __future__ import annotations

import ast
from collections.abc import Collection

from curvflow.flows.plan.code.doubts.expressions import (
    CHANGING,
    MADE,
    OPERATING,
    DoubtError,
    ExpressionJudge,
)
from curvflow.flows.plan.code.modules import FUNCTIONS, Module, bindings
from curvflow.flows.plan.code.normal import Meaning, dotted
from curvflow.flows.plan.code.objects import HARMLESS, KEEPING, is_own
from curvflow.flows.plan.code.syntax import (
    arguments,
    assigns_special,
    depends_on_order,
    is_special,
    names_alone,
    only_returns,
    own_methods,
    parameters,
)

_DECORATING = frozenset(
    {*HARMLESS, "collections", "contextlib", "functools", "jax", "numba", "types"}
)
_SETTING = (["setter"], ["getter"], ["deleter"])  # of a property
# They run when a class is made, of a base and of a metaclass.
_SUBCLASSING = frozenset({"__init_subclass__", "__class_getitem__", "__mro_entries__"})
_CREATING = frozenset({"__init__", "__new__", "__prepare__", "mro", *_SUBCLASSING})


class DefinitionJudge(ExpressionJudge):
    """Judge of functions and classes, as they are defined."""

    def _function(
        self,
        function: ast.FunctionDef | ast.AsyncFunctionDef,
        siblings: Collection[str] = (),
    ) -> None:
        for decorator in function.decorator_list:
            chain, root = dotted(decorator)
            is_property = isinstance(root, ast.Name) and root.id in siblings
            if not is_property or chain not in _SETTING:
                self._decorator(decorator)
        arguments = function.args
        for default in (*arguments.defaults, *arguments.kw_defaults):
            if default is not None:
                self._runs(default)
        self._annotation(function.returns)
        for argument in ast.walk(arguments):
            if isinstance(argument, ast.arg):
                self._annotation(argument.annotation)

    def _annotation(self, annotation: ast.expr | None) -> None:
        if annotation is not None and self._has_annotations:
            for node in ast.walk(annotation):
                if isinstance(node, ast.Call | ast.NamedExpr):
                    raise DoubtError(node, "an annotation that runs code")
                if isinstance(node, OPERATING):
                    self._operates(node)

    def _decorator(self, decorator: ast.expr) -> None:
        meaning = self._meaning(decorator)
        is_known = (
            meaning.text in KEEPING or meaning.text.partition(".")[0] in _DECORATING
        )
        if meaning.text.rpartition(".")[2] in CHANGING or not (
            is_own(meaning.text) or is_known or self._only_wraps(decorator)
        ):
            raise DoubtError(decorator, "a decorator that may register")
        if isinstance(decorator, ast.Call):
            for argument in arguments(decorator):
                self._runs(argument)

    def _only_wraps(self, decorator: ast.expr) -> bool:
        """Return whether a decorator of the project returns a function, and no more."""
        meaning = self._meaning(decorator)
        parts = self._objects.parts(meaning)
        function = parts[0] if len(parts) == 1 else None
        home = self._names.module((meaning.definition or "").partition(":")[0])
        for _ in range(2 if isinstance(decorator, ast.Call) else 1):
            if home is None or not isinstance(function, ast.FunctionDef):
                return False
            inner = [s for s in function.body if isinstance(s, ast.FunctionDef)]
            others = [s for s in function.body if s not in inner]
            is_idle = all(map(only_returns, others)) and all(
                self._defines(home, nested) for nested in inner
            )
            if not is_idle:
                return False
            function = inner[0] if inner else None
        return True

    def _defines(self, home: Module, function: ast.FunctionDef) -> bool:
        """Return whether defining a function runs nothing but `functools.wraps`."""
        run = [*function.args.defaults, *function.args.kw_defaults, function.returns]
        run += [argument.annotation for argument in parameters(function.args)]
        calls = any(
            isinstance(node, ast.Call)
            for part in run
            if part
            for node in ast.walk(part)
        )
        return not calls and all(
            self._names.spelt(home, decorator).text == "functools.wraps"
            for decorator in function.decorator_list
        )

    def _class(self, cls: ast.ClassDef) -> None:
        for decorator in cls.decorator_list:
            self._decorator(decorator)
        self._bases(cls)
        if self._calls_itself(cls):
            raise DoubtError(cls, "an enumeration with a method of its own making")
        for keyword in cls.keywords:
            self._runs(keyword.value)
            if keyword.arg == "metaclass" and (
                not self._objects.is_named(self._meaning(keyword.value))
                or self._objects.has(self._meaning(keyword.value), _CREATING)
            ):
                raise DoubtError(cls, "a metaclass that may register")
        around, inner = self._hidden, bindings(cls.body, self._module.package)
        self._hidden = {*around, *inner.assigned, *inner.imported}
        for statement in cls.body:
            self._member(cls, statement)
        self._hidden = around

    def _calls_itself(self, cls: ast.ClassDef) -> bool:
        """Return whether a class calls methods while it is made, as enumerations do."""
        classes: list[tuple[Module | None, ast.stmt]] = [(self._module, cls)]
        for base in cls.bases:
            classes += self._objects.classes(self._base(base))
        made = [
            (home, c) for home, c in classes if home and isinstance(c, ast.ClassDef)
        ]
        return any(
            self._names.spelt(home, base).text.startswith("enum.")
            for home, part in made
            for base in part.bases
        ) and any(
            assigns_special(member)
            or (
                isinstance(member, FUNCTIONS)
                and is_special(member)
                and member.name != "__contains__"
            )
            for _, part in made
            for member in part.body
        )

    def _base(self, base: ast.expr) -> Meaning:
        return self._meaning(base.value if isinstance(base, ast.Subscript) else base)

    def _bases(self, cls: ast.ClassDef) -> None:
        # Methods are followed apart from what stands between them.
        if depends_on_order(cls):
            raise DoubtError(cls, f"`{cls.name}`, whose names depend on their order")
        for base in cls.bases:
            meaning = self._base(base)
            if not self._objects.is_named(meaning):
                raise DoubtError(cls, "a base that no name tells")
            if self._objects.has(meaning, _SUBCLASSING) or self._objects.is_live(
                meaning, MADE
            ):
                raise DoubtError(cls, "a subclass that its base may register")
            self._runs(base)

    def _member(self, cls: ast.ClassDef, statement: ast.stmt) -> None:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(statement, {s.name for s in own_methods(cls)})
            case ast.ClassDef():
                self._class(statement)
            case ast.Assign(targets=targets, value=value):
                if not all(map(names_alone, targets)):
                    raise DoubtError(statement, "an assignment to a part of something")
                self._runs(value)
                self._operates(value)  # what follows may, by a name of the class
            case ast.AnnAssign(target=ast.Name(), value=given, annotation=annotation):
                self._annotation(annotation)
                if given is not None:
                    self._runs(given)
                    self._operates(given)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case _:
                word = type(statement).__name__
                raise DoubtError(statement, f"`{word}` in a class")
