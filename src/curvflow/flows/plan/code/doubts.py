"""Modules whose names cannot be followed one by one with certainty.

Following is certain where a module consists of definitions that are bound once, by
plain statements: functions, classes, imports and assignments that run no code which
could change another name of the project. Anything else, such as a loop that fills a
table, a decorator that registers, `import *` or `exec`, is a doubt: then the whole
module counts. A doubt may be needless; what is left without one must not be wrong.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from curvflow.flows.plan.code.modules import (
    FUNCTIONS,
    Module,
    bindings,
    is_for_checkers,
    is_main,
)
from curvflow.flows.plan.code.normal import (
    LOADING,
    Meaning,
    Names,
    dotted,
    loaded_module,
)
from curvflow.flows.plan.code.sources import OWN

# They read their arguments, and call nothing that is given to them.
_READING = frozenset(
    f"?{name}"
    for name in (
        *("bytes.fromhex", "dict.fromkeys", "float.fromhex", "str.maketrans"),
        *(
            "abs",
            "all",
            "any",
            "bool",
            "bytes",
            "complex",
            "dict",
            "divmod",
            "enumerate",
        ),
        *("float", "format", "frozenset", "hasattr", "int", "isinstance", "issubclass"),
        *("len", "list", "max", "min", "object", "pow", "print", "range", "repr"),
        *("reversed", "round", "set", "slice", "sorted", "str", "sum", "tuple", "zip"),
    )
)
# They keep a function that is given to them for later.
_KEEPING = frozenset(
    {
        *("?property", "?staticmethod", "?classmethod", "collections.defaultdict"),
        *("functools.partial", "functools.lru_cache", "functools.cache"),
        *("functools.cached_property", "functools.wraps", "functools.total_ordering"),
        *("dataclasses.field", "dataclasses.replace", "numpy.vectorize"),
        *("pydantic.AfterValidator", "pydantic.BeforeValidator", "pydantic.Field"),
        *("pydantic.Discriminator", "pydantic.PlainValidator", "torch.compile"),
        *("pydantic.WrapValidator", "torch.vmap"),
    }
)
# Their functions change nothing that they are given, but for the names below.
_HARMLESS = frozenset(
    {
        *("abc", "collections", "contextlib", "dataclasses", "datetime", "decimal"),
        *("enum", "fractions", "functools", "itertools", "logging", "math", "numpy"),
        *("os", "pathlib", "pydantic", "re", "scipy", "string", "torch", "types"),
        *("typing", "typing_extensions", "xarray", OWN),
    }
)
_CHANGING = frozenset(
    {
        *("copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask"),
        *("reduce", "singledispatch", "singledispatchmethod", "register"),
        *("fromfunction", "apply_along_axis", "apply_over_axes", "piecewise"),
    }
)
_DECORATING = frozenset({*_HARMLESS, "jax", "numba"})
_SETTING = (["setter"], ["getter"], ["deleter"])  # of a property
# With one of these any name of the module can be meant, or replaced.
_HIDING = frozenset({"?exec", "?eval", "?globals", "?__import__", "?breakpoint"})
_HIDDEN = frozenset({"__subclasses__", "__globals__", "__builtins__", "f_globals"})
# They run when a class is made, of a base and of a metaclass.
_SUBCLASSING = frozenset({"__init_subclass__", "__class_getitem__", "__mro_entries__"})
_CREATING = frozenset({"__init__", "__new__", "__prepare__", "mro", *_SUBCLASSING})
_HOOKS = frozenset({"__getattr__", "__dir__"})  # of a module


class _DoubtError(Exception):
    """A statement that is not certain."""

    def __init__(self, node: ast.AST, what: str) -> None:
        super().__init__(f"line {getattr(node, 'lineno', 0)}: {what}")


def doubt_of(names: Names, module: Module) -> str:
    """Return the first doubt about a module, with its line; empty if there is none."""
    try:
        _Judge(names, module).judge()
    except _DoubtError as doubt:
        return str(doubt)
    return ""


class _Judge:
    def __init__(self, names: Names, module: Module) -> None:
        self._names, self._module = names, module

    def judge(self) -> None:
        for statement in self._module.body:
            self._statement(statement)
        self._bound_once(self._module.body)
        for statement in self._module.body:
            for node in ast.walk(statement):
                self._anywhere(node)

    # statements that run on import

    def _statement(self, statement: ast.stmt) -> None:
        check = _STATEMENTS.get(type(statement))
        if check is None:
            word = type(statement).__name__
            raise _DoubtError(statement, f"`{word}` at module level")
        check(self, statement)

    def _definition(self, statement: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        # Names that it says for type checkers it gives are followed where they lead.
        if statement.name in _HOOKS and not self._module.lazy:
            raise _DoubtError(statement, f"a module's {statement.name}")
        self._function(statement)

    def _import(self, statement: ast.Import | ast.ImportFrom | ast.Pass) -> None:
        names = [] if isinstance(statement, ast.Pass) else statement.names
        if any(alias.name == "*" for alias in names):
            raise _DoubtError(statement, "import *")

    def _expression(self, statement: ast.Expr) -> None:
        self._runs(statement.value)

    def _choice(self, statement: ast.If) -> None:
        is_idle = is_for_checkers(statement.test) or is_main(statement.test)
        if statement.orelse or not is_idle:
            raise _DoubtError(statement, "a condition at module level")

    def _assignment(self, statement: ast.Assign | ast.AnnAssign) -> None:
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        else:
            targets = [statement.target]
        if statement.value is not None:
            self._runs(statement.value)
        for target in targets:
            if _names_alone(target):
                if _HOOKS & set(_names_in(target)):
                    raise _DoubtError(statement, "a module's hook is assigned")
            elif len(targets) > 1 or not self._enters(target):
                raise _DoubtError(statement, "an assignment to a part of something")

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
        return len(made) == 1 and _makes_table(made[0])

    def _attempt(self, statement: ast.Try) -> None:
        handled = [s for handler in statement.handlers for s in handler.body]
        for inner in (*statement.body, *handled, *statement.orelse):
            is_plain = isinstance(inner, ast.Import | ast.ImportFrom | ast.Pass) or (
                isinstance(inner, ast.Assign)
                and all(map(_names_alone, inner.targets))
                and isinstance(inner.value, ast.Constant)
            )
            if not is_plain:
                raise _DoubtError(inner, "`Try` around more than imports")
            self._statement(inner)
        if statement.finalbody:
            raise _DoubtError(statement, "`Try` with `finally`")

    def _bound_once(self, statements: Sequence[ast.stmt]) -> None:
        """Refuse names that several statements bind; those of a `try` are one."""
        count: Counter[str] = Counter()
        for statement in statements:
            if isinstance(statement, ast.If) or self._is_overload(statement):
                continue
            bound = bindings([statement], self._module.package)
            # `import a.b` and `import a.c` bind the same package.
            packages = {
                name
                for name, found in bound.imported.items()
                if all(target.member is None for target in found)
            }
            for name in {*bound.assigned, *bound.imported} - packages:
                count[name] += 1
                if count[name] > 1:
                    raise _DoubtError(statement, f"{name} is bound again")

    def _is_overload(self, statement: ast.stmt) -> bool:
        decorators = getattr(statement, "decorator_list", [])
        return any(self._meaning(d).text == "typing.overload" for d in decorators)

    # functions and classes

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

    def _decorator(self, decorator: ast.expr) -> None:
        text = self._meaning(decorator).text
        is_known = text in _KEEPING or text.partition(".")[0] in _DECORATING
        if not is_known or text.rpartition(".")[2] in _CHANGING:
            raise _DoubtError(decorator, "a decorator that may register")
        if isinstance(decorator, ast.Call):
            for argument in _arguments(decorator):
                self._runs(argument)

    def _class(self, cls: ast.ClassDef) -> None:
        for decorator in cls.decorator_list:
            self._decorator(decorator)
        for base in cls.bases:
            self._runs(base)
            if self._has(self._meaning(base), _SUBCLASSING):
                raise _DoubtError(cls, "a subclass that its base may register")
        for keyword in cls.keywords:
            self._runs(keyword.value)
            if keyword.arg == "metaclass" and self._has(
                self._meaning(keyword.value), _CREATING
            ):
                raise _DoubtError(cls, "a metaclass that may register")
        for statement in cls.body:
            self._member(cls, statement)

    def _member(self, cls: ast.ClassDef, statement: ast.stmt) -> None:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(statement, {s.name for s in _methods(cls)})
            case ast.ClassDef():
                self._class(statement)
            case ast.Assign(targets=targets, value=value):
                if not all(map(_names_alone, targets)):
                    raise _DoubtError(statement, "an assignment to a part of something")
                self._runs(value)
            case ast.AnnAssign(target=ast.Name(), value=given):
                if given is not None:
                    self._runs(given)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case _:
                word = type(statement).__name__
                raise _DoubtError(statement, f"`{word}` in a class")

    # expressions that run on import

    def _runs(self, expression: ast.expr) -> None:
        """Refuse an expression that may change another name when it is evaluated."""
        for node in _evaluated(expression):
            if isinstance(node, ast.NamedExpr):
                raise _DoubtError(node, "an assignment within an expression")
            if isinstance(node, ast.Call):
                self._call(node)

    def _call(self, call: ast.Call) -> None:
        chain, root = dotted(call.func)
        if isinstance(root, ast.Constant | ast.JoinedStr):
            return  # a method of a text
        if not isinstance(root, ast.Name):
            raise _DoubtError(call, "a call of what no name tells")
        meaning = self._meaning(call.func)
        if meaning.text.startswith("?"):
            self._builtin(call, meaning.text)
        elif _is_own(meaning.text):
            pass
        elif meaning.module is not None or meaning.definition:
            if chain or not self._is_plain_class(meaning):
                raise _DoubtError(call, f"a call of the project's `{root.id}`")
        else:
            self._library(call, meaning.text)

    def _builtin(self, call: ast.Call, text: str) -> None:
        if text in _KEEPING or text == "?type":
            return
        if text == "?getattr" and len(call.args) > 1:
            return  # of a module all is taken
        if text not in _READING:
            raise _DoubtError(call, f"a call of `{text[1:]}`")
        keyed = call.keywords and text != "?dict"
        if keyed or self._hands_code(call):
            raise _DoubtError(call, f"`{text[1:]}` with code given to it")

    def _library(self, call: ast.Call, text: str) -> None:
        if text in LOADING and not loaded_module(call):
            raise _DoubtError(call, "a module of a computed name")
        last = text.rpartition(".")[2]
        into = any(keyword.arg == "out" for keyword in call.keywords)
        hands_code = text not in _KEEPING and self._hands_code(call)
        is_known = text.partition(".")[0] in _HARMLESS
        hands_variable = not is_known and any(map(self._is_variable, _within(call)))
        is_changing = last in _CHANGING or last.endswith("_")
        if into or hands_code or hands_variable or is_changing:
            raise _DoubtError(call, f"`{last}` may change what it is given")

    def _hands_code(self, call: ast.Call) -> bool:
        """Return whether a call is given a function, or something that may be one."""
        for node in _within(call):
            if isinstance(node, ast.Lambda):
                return True
            if isinstance(node, ast.Attribute):
                _, root = dotted(node)
                if isinstance(root, ast.Name) and self._is_variable(root):
                    return True
            meaning = self._meaning(node) if isinstance(node, ast.Name) else None
            if meaning and meaning.definition and self._is_function(meaning):
                return True
        return False

    # what names mean

    def _meaning(self, node: ast.expr) -> Meaning:
        return self._names.spelt(self._module, node)

    def _parts(self, meaning: Meaning) -> list[ast.stmt]:
        home, _, name = (meaning.definition or "").partition(":")
        module = self._names.module(home) if home else None
        parts = module.parts.get(name, ()) if module else ()
        return [part.statement for part in parts]

    def _is_function(self, meaning: Meaning) -> bool:
        return any(isinstance(part, FUNCTIONS) for part in self._parts(meaning))

    def _is_variable(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Name):
            return False
        parts = self._parts(self._meaning(node))
        return any(not isinstance(p, (*FUNCTIONS, ast.ClassDef)) for p in parts)

    def _classes(self, meaning: Meaning) -> Iterator[ast.stmt]:
        """Yield what a name of the project is bound to, a class with its bases."""
        if _is_own(meaning.text) or not meaning.definition:
            return
        module = self._names.module(meaning.definition.partition(":")[0])
        for part in self._parts(meaning):
            yield part
            for base in part.bases if isinstance(part, ast.ClassDef) else ():
                if module is not None:
                    yield from self._classes(self._names.spelt(module, base))

    def _has(self, cls: Meaning, hooks: frozenset[str]) -> bool:
        """Return whether a class of the project may have one of these methods."""
        return any(
            not isinstance(part, ast.ClassDef)
            or hooks & {method.name for method in _methods(part)}
            for part in self._classes(cls)
        )

    def _is_plain_class(self, meaning: Meaning) -> bool:
        """Return whether no code of the project runs by itself with instances.

        As it would in `__init__`, in a property, or where an operator is defined.
        """
        classes = list(self._classes(meaning))
        return bool(classes) and all(
            isinstance(cls, ast.ClassDef)
            and not any(m.name[:2] == "__" or m.decorator_list for m in _methods(cls))
            for cls in classes
        )

    # what is doubtful wherever it stands

    def _anywhere(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name) and self._meaning(node).text in _HIDING:
            raise _DoubtError(node, f"`{node.id}`")
        if isinstance(node, ast.Attribute) and self._hides(node):
            raise _DoubtError(node, f"`{node.attr}`")

    def _hides(self, node: ast.Attribute) -> bool:
        return node.attr in _HIDDEN or self._meaning(node).text == "sys.modules"


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


def _is_own(text: str) -> bool:
    return text.startswith((f"{OWN}.", f"{OWN}:"))


def _methods(cls: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for statement in cls.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement


def _makes_table(statement: ast.stmt) -> bool:
    """Return whether a statement binds a table that is written out to one name."""
    if isinstance(statement, ast.Assign) and len(statement.targets) > 1:
        return False
    return isinstance(getattr(statement, "value", None), ast.Dict | ast.List)


def _names_alone(target: ast.expr) -> bool:
    if isinstance(target, ast.Tuple | ast.List):
        return all(map(_names_alone, target.elts))
    if isinstance(target, ast.Starred):
        return _names_alone(target.value)
    return isinstance(target, ast.Name)


def _names_in(target: ast.expr) -> Iterator[str]:
    return (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


def _arguments(call: ast.Call) -> Iterator[ast.expr]:
    yield from call.args
    yield from (keyword.value for keyword in call.keywords)


def _within(call: ast.Call) -> Iterator[ast.AST]:
    """Yield what stands in the arguments of a call, but for calls that are given."""
    pending: list[ast.AST] = [*_arguments(call)]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.Lambda | ast.Attribute):
            pending += ast.iter_child_nodes(node)


def _evaluated(expression: ast.expr) -> Iterator[ast.AST]:
    """Yield what is evaluated with an expression: not the bodies of lambdas."""
    pending: list[ast.AST] = [expression]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.Lambda):
            pending += [d for d in (*node.args.defaults, *node.args.kw_defaults) if d]
        else:
            pending += ast.iter_child_nodes(node)
