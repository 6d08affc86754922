"""Texts of errors, read from the syntax tree of the code that raises them.

A text is read with `{}` for what only a run knows. Names are looked up in the function
and the module of the `raise`; a text that another function makes counts as `{}`.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import product

# Errors whose text is no message of its own, and why.
EXEMPT = {
    "DoubtError": "a reason, which a sentence of `plan_text.py` takes in",
    "_unknown": "a part, which a sentence of `library_store.py` takes in",
    "_other_draws": "a part, which a sentence of `modules.py` takes in",
    "corrupt": "a part, which a sentence of `payload_digests.py` takes in",
    "corrupt_payload": "a part: a damaged payload is computed again, not mended",
    "CorruptPayloadError": "as before",
    "Exit": "a number that the shell is given",
    "TornEntryError": "caught in its package, which repairs the log",
    "TornChunkError": "a part, which a sentence of `payload_digests.py` takes in",
    "CannotRecordError": "caught in its package, which goes on without a graph",
    "AttributeError": "Python's own words, which its tools look for",
    "AssertionError": "a mistake of the package, not of its user",
    "KeyError": "caught where it is raised",
}
VALUE = re.compile(
    r"(?:^|[ {}])expected (?!no )\S.*, got \S.*?(?:[.?] |\. ?(?={))\S.*[.?}]$"
)
COMBINATION = re.compile(r"\S cannot be combined with \S.*?(?:\. |\. ?(?={))\S.*[.?}]$")
WHERE = re.compile(r"^(?:[\w.\-{}\[\]]+(?: [\w.\-{}]+)?: )+")


OF_A_CALL = re.compile(r"^(?:{}\. )+(?=\S* ?expected |\S.* cannot be combined )")
MADE_ELSEWHERE = re.compile(r"^[\w.{}]*{}(?:$|[.,] | \(| [A-Z])")


def raises(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield line, error and text of each `raise` with a text that can be read."""
    module = _texts(tree.body)
    for scope in _functions(tree):
        known = None
        for node in _within(scope):
            error, parts = _said(node)
            if parts:
                known = known or module | _texts(_within(scope))
                for text in sorted(_messages(parts, known)):
                    yield parts[0].lineno, error, text


def has_a_form(text: str) -> bool:
    """Whether a text is of one of the two forms, or another function makes it."""
    if MADE_ELSEWHERE.match(WHERE.sub("", text)):
        return True
    return bool(VALUE.search(text) or COMBINATION.search(text))


def _functions(tree: ast.Module) -> Iterator[ast.AST]:
    todo: list[ast.AST] = [*tree.body]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef):
            todo.extend(node.body)


def _within(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a function, those of its blocks and functions too."""
    todo = [scope]
    while todo:
        node = todo.pop()
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, field, ())
            if isinstance(inner, list):
                todo.extend(inner)


def _texts(statements: Iterable[ast.AST]) -> dict[str, list[ast.expr]]:
    """Return what names are assigned, by name."""
    assigned: dict[str, list[ast.expr]] = defaultdict(list)
    named = (s for s in statements if isinstance(s, ast.Assign | ast.AugAssign))
    for statement in sorted(named, key=lambda statement: statement.lineno):
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                _assign(target, statement.value, assigned)
        elif values := assigned.get(ast.unparse(statement.target)):
            whole = ast.BinOp(values[-1], ast.Add(), statement.value)
            values[-1] = ast.copy_location(whole, statement)
    return assigned


def _assign(target: ast.expr, value: ast.expr, to: dict[str, list[ast.expr]]) -> None:
    if isinstance(target, ast.Name):
        to[target.id].append(value)
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for part, text in zip(target.elts, value.elts, strict=True):
            _assign(part, text, to)


def _said(node: ast.AST) -> tuple[str, list[ast.expr]]:
    """Return the error that a statement raises or yields, and what it is given."""
    match node:
        case ast.Raise(exc=ast.Call() as call) | ast.Return(value=ast.Call() as call):
            error = ast.unparse(call.func).rpartition(".")[2]
            if isinstance(node, ast.Raise) or error.endswith(("Error", "error")):
                hints = [k.value for k in call.keywords if k.arg == "hint"]
                return error, [*call.args, *hints]
        case ast.Expr(
            value=ast.Yield(value=ast.Tuple(elts=[ast.Tuple(), message, hint]))
        ):
            return "ParamProblem", [message, hint]
    return "", []


def _messages(given: list[ast.expr], known: dict[str, list[ast.expr]]) -> set[str]:
    # `stage.error(path, message, hint)` joins its texts to sentences.
    parts = [texts for arg in given if (texts := _read(arg, known))]
    chosen = {". ".join(filter(None, texts)) for texts in product(*parts)}
    return {OF_A_CALL.sub("", text) for text in chosen} - {""}


def _read(node: ast.expr, known: dict[str, list[ast.expr]], depth: int = 0) -> set[str]:
    """Return the texts that an expression may have, none if it is no text."""
    if isinstance(node, ast.Constant | ast.Tuple | ast.List):
        text = getattr(node, "value", None)
        return {text} if isinstance(text, str) and text else set()
    match node:
        case ast.JoinedStr(values=values):
            return _joined(values, known, depth)
        case ast.FormattedValue(value=ast.Name() | ast.IfExp() as value):
            return _read(value, known, depth) or {"{}"}
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return _joined([left, right], known, depth)
        case ast.IfExp(body=body, orelse=orelse):
            both = (
                _read(part, known, depth) or {_empty(part)} for part in (body, orelse)
            )
            return set().union(*both)
        case ast.Name(id=name) if name in known and depth < 3:
            return _read(_latest(known[name], node.lineno), known, depth + 1)
        case ast.Call(func=ast.Attribute(value=ast.Name() as text, attr="format")):
            return {re.sub(r"{\w*}", "{}", t) for t in _read(text, known, depth)}
    return {"{}"}


def _joined(
    nodes: list[ast.expr], known: dict[str, list[ast.expr]], depth: int
) -> set[str]:
    parts = [_read(node, known, depth) or {"{}"} for node in nodes]
    return {"".join(chosen) for chosen in product(*parts)}


def _latest(values: list[ast.expr], line: int) -> ast.expr:
    """Return what a name was last assigned before a line, by the order of lines."""
    earlier = [value for value in values if value.lineno <= line]
    return max(earlier or values, key=lambda value: value.lineno)


def _empty(node: ast.expr) -> str:
    return "" if isinstance(node, ast.Constant) and node.value in (None, "") else "{}"
