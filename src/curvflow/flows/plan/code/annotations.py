"""Annotations that run: read by libraries and decorators, not by people alone.

As the fields of a pydantic model, which convert what they are given, and the function
of `singledispatch` that is chosen by its argument's type.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from curvflow.flows.plan.code.modules import FUNCTIONS, Module, Part
from curvflow.flows.plan.code.normal import BLIND, Names
from curvflow.flows.plan.code.sources import OWN
from curvflow.flows.plan.code.syntax import own_methods, parameters

_SEEING = frozenset({"register"})
# In a dataclass they say what is a field.
_MARKS = frozenset({"ClassVar", "InitVar", "KW_ONLY"})


def that_run(names: Names, module: Module, parts: Sequence[Part]) -> list[Part]:
    """Return the annotations of a definition that something else than people reads."""
    expressions = [
        a for part in parts for a in _of(names, module, part.statement, depth=8)
    ]
    return _together(expressions)


def all_of(names: Names, module: Module, parts: Sequence[Part]) -> list[Part]:
    """Return the annotations of a definition that is handed to what reads them.

    Of what is neither a class nor a function, the classes that it names.
    """
    expressions: list[ast.expr] = []
    for statement in (part.statement for part in parts):
        if isinstance(statement, ast.ClassDef):
            expressions += _fields(names, module, statement, 8, is_read=True)
            for method in own_methods(statement):
                expressions += _of(names, module, method, depth=1)
        elif isinstance(statement, FUNCTIONS):
            expressions += _of_function(statement)
        elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value:
            expressions.append(statement.value)
    return _together(expressions)


def _together(expressions: Sequence[ast.expr]) -> list[Part]:
    read = list(map(_parsed, expressions))
    return [Part(ast.Expr(ast.Tuple(read, ast.Load())))] if read else []


def _of_function(
    function: ast.FunctionDef | ast.AsyncFunctionDef,
) -> Iterator[ast.expr]:
    yield from (a.annotation for a in parameters(function.args) if a.annotation)
    if function.returns:
        yield function.returns


def _of(
    names: Names, module: Module, statement: ast.stmt, depth: int
) -> Iterator[ast.expr]:
    if isinstance(statement, FUNCTIONS):
        if _is_read(names, module, statement.decorator_list):
            yield from _of_function(statement)
    elif isinstance(statement, ast.ClassDef) and depth:
        for method in own_methods(statement):
            yield from _of(names, module, method, depth)
        is_read = _has_reading_base(names, module, statement, depth) or _is_read(
            names, module, statement.decorator_list
        )
        yield from _fields(names, module, statement, depth, is_read=is_read)


def _fields(
    names: Names, module: Module, cls: ast.ClassDef, depth: int, *, is_read: bool
) -> Iterator[ast.expr]:
    for statement in cls.body:
        if isinstance(statement, ast.AnnAssign) and (
            is_read or (cls.decorator_list and _is_marked(statement.annotation))
        ):
            yield statement.annotation
    if is_read:
        for home, base in _bases(names, module, cls):
            if isinstance(base, ast.ClassDef) and depth:
                yield from _fields(names, home, base, depth - 1, is_read=True)


def _is_read(names: Names, module: Module, decorators: Sequence[ast.expr]) -> bool:
    """Return whether one of some decorators may look at annotations."""
    texts = [names.spelt(module, decorator).text for decorator in decorators]
    return any(
        text.rpartition(".")[2] in _SEEING or _origin(text) not in BLIND
        for text in texts
    )


def _has_reading_base(
    names: Names, module: Module, cls: ast.ClassDef, depth: int
) -> bool:
    texts = [names.spelt(module, base) for base in _plain(cls.bases)]
    if any(not t.definition and _origin(t.text) not in BLIND for t in texts):
        return True
    return bool(depth) and any(
        isinstance(base, ast.ClassDef)
        and _has_reading_base(names, home, base, depth - 1)
        for home, base in _bases(names, module, cls)
    )


def _bases(
    names: Names, module: Module, cls: ast.ClassDef
) -> Iterator[tuple[Module, ast.stmt]]:
    for base in _plain(cls.bases):
        meaning = names.spelt(module, base)
        home, _, name = (meaning.definition or "").partition(":")
        if home.partition(".")[0] in ("", OWN):
            continue
        if owner := names.module(home):
            yield from ((owner, part.statement) for part in owner.parts.get(name, ()))


def _plain(bases: Sequence[ast.expr]) -> Iterator[ast.expr]:
    """Yield bases without what stands in brackets after them."""
    for base in bases:
        yield base.value if isinstance(base, ast.Subscript) else base


def _origin(text: str) -> str:
    return "?" if text.startswith("?") else text.partition(".")[0].partition(":")[0]


def _is_marked(annotation: ast.expr) -> bool:
    return any(
        getattr(node, "attr", getattr(node, "id", None)) in _MARKS
        for node in ast.walk(_parsed(annotation))
    )


def _parsed(annotation: ast.expr) -> ast.expr:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            return annotation
    return annotation
