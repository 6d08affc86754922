"""Mutants that two source trees have in common.

A mutant is one change of one expression within a function. It exists in both trees if
the statement that holds the expression does: word for word, in the one function of that
class and name that has it, or, where functions were renamed or moved, once in each
whole package. The text of a statement fixes its syntax tree, so the same change is
found in both by its number.
"""

from __future__ import annotations

import ast
import copy
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGE = Path("src/curvflow")
ROOMS = {  # share of the mutants
    "flows/graph": 2,
    "flows/plan": 2,
    "flows/run": 2,
    "stores": 2,
    "tasks/numerics": 6,
    "tasks/training": 2,
    "tasks/llc": 1,
    "tasks/statistics": 2,
    "tasks/aggregate": 2,
}
ENOUGH = 24  # characters by which a statement is known in a whole package
BOUNDARIES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,  # codespell:ignore notin
    ast.NotIn: ast.In,  # codespell:ignore notin
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
WORDS = ("Error", "Warning", "warn", "info", "debug")  # ends of names of messages
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
CHECKS = ("strict", "stacklevel")  # arguments that change no result
WORDLESS = ("__repr__", "__str__")


@dataclass(frozen=True)
class Edit:
    """Other text for some bytes of a file of a tree."""

    path: str
    line: int
    start: int
    stop: int
    text: str

    def apply(self, source: bytes) -> bytes:
        """Return the source with the edit made."""
        return source[: self.start] + self.text.encode() + source[self.stop :]


@dataclass(frozen=True)
class Mutant:
    """One change of one statement that both trees have."""

    room: str
    function: str
    statement: str
    change: str
    after: Edit
    before: Edit

    @property
    def name(self) -> str:
        """Its place and change in the present tree."""
        edit = self.after
        return f"{edit.path}:{edit.line} [{edit.start}] {self.change}"


@dataclass(frozen=True)
class Statement:
    """A statement of a function, without the statements within it."""

    path: str
    function: str
    text: str
    parts: tuple[ast.AST, ...]
    starts: tuple[int, ...]  # of the lines of the file, in bytes

    def edits(self) -> list[tuple[str, Edit]]:
        """List all changes of the statement, each as its name and its edit."""
        listed = []
        for part in self.parts:
            for node in expressions(part):
                for change, new in changes(node):
                    listed.append((change, self.edit(node, new)))
        return listed

    def edit(self, node: ast.AST, new: ast.AST) -> Edit:
        """Write a new node over one of the file's."""
        place: Any = node
        start = self.starts[place.lineno - 1] + place.col_offset
        stop = self.starts[place.end_lineno - 1] + place.end_col_offset
        text = ast.unparse(ast.fix_missing_locations(new))
        text = text if isinstance(new, ast.stmt) else f"({text})"
        return Edit(self.path, place.lineno, start, stop, text)


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the changes of a node itself, each with its name."""
    match node:
        case ast.Compare(ops=[operator, *_]):
            for table in BOUNDARIES, OPPOSITES:
                if type(operator) in table:
                    yield with_operator(node, operator, table[type(operator)]())
        case ast.BoolOp(op=ast.And()):
            yield with_operator(node, node.op, ast.Or())
        case ast.BoolOp(op=ast.Or()):
            yield with_operator(node, node.op, ast.And())
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator):
            if type(operator) in OPERATORS:
                yield with_operator(node, operator, OPERATORS[type(operator)]())
        case _:
            yield from unary_changes(node)


def unary_changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the changes of signs, conditions and constants."""
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            yield "not dropped", copy.deepcopy(inner)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            yield "minus dropped", copy.deepcopy(inner)
        case ast.IfExp(test=test) if not has_contrary(test):
            new = copy.deepcopy(node)
            new.test = ast.UnaryOp(ast.Not(), new.test)
            yield "condition negated", new
        case ast.Constant(value=bool() | int() | float() as value):
            yield f"{value} -> {other(value)}", ast.Constant(other(value))


def with_operator(node: ast.AST, old: ast.AST, new: ast.AST) -> tuple[str, ast.AST]:
    """Return the name of a change of the first operator, and the node so changed."""
    changed: Any = copy.deepcopy(node)
    if isinstance(node, ast.Compare):
        changed.ops[0] = new
    else:
        changed.op = new
    return f"{type(old).__name__} -> {type(new).__name__}", changed


def has_contrary(test: ast.AST) -> bool:
    """Return whether a change of a test's operator already negates it."""
    match test:
        case ast.UnaryOp(op=ast.Not()) | ast.Constant():
            return True
        case ast.Compare(ops=[_]):
            return True
    return False


def other(value: float) -> float:
    """Return another constant: true for false, the next integer, twice the number."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return value * 2 or 1.0


def expressions(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and what is in it, but for texts, messages and annotations."""
    if isinstance(node, ast.JoinedStr) or is_message(node):
        return
    if isinstance(node, ast.keyword) and node.arg in CHECKS:
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "target", "targets"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from expressions(child)


def is_message(node: ast.AST) -> bool:
    """Return whether a node calls what makes an error, a warning or a line of a log."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name.endswith(WORDS)
    return False


class Conditional(Statement):
    """A statement with a condition, which can be negated as a whole."""

    def edits(self) -> list[tuple[str, Edit]]:
        """List all changes, and the negated condition."""
        test: Any = self.parts[0]
        if has_contrary(test):
            return super().edits()
        contrary = ast.UnaryOp(ast.Not(), copy.deepcopy(test))
        return [*super().edits(), ("condition negated", self.edit(test, contrary))]


def statements_of(tree: Path, path: Path) -> list[Statement]:
    """List the statements of all functions of a file."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    name = str(path.relative_to(tree))
    listed: list[Statement] = []

    def visit(body: list[ast.stmt], scope: tuple[str, ...], inside: bool) -> None:
        for node in body:
            if isinstance(node, SCOPES):
                is_class = isinstance(node, ast.ClassDef)
                if node.name not in WORDLESS:
                    visit(node.body, (*scope, node.name), not is_class)
                continue
            if inside and (parts := parts_of(node)):
                kind = (
                    Conditional if isinstance(node, ast.If | ast.While) else Statement
                )
                text = f"{type(node).__name__}: {', '.join(map(ast.unparse, parts))}"
                listed.append(kind(name, ".".join(scope), text, parts, tuple(starts)))
            for inner in blocks(node):
                visit(inner, scope, inside)

    visit(ast.parse(source).body, (), False)
    return listed


def parts_of(node: ast.stmt) -> tuple[ast.AST, ...]:
    """Return the expressions of a statement itself; none of what says or checks."""
    match node:
        case ast.If(test=test) | ast.While(test=test):
            return (test,)
        case ast.For(iter=iterated) | ast.AsyncFor(iter=iterated):
            return (iterated,)
        case ast.With(items=items) | ast.AsyncWith(items=items):
            return tuple(item.context_expr for item in items)
        case ast.Match(subject=subject):
            return (subject,)
        case ast.Expr(value=ast.Constant()):
            return ()
        case ast.Assign() | ast.AugAssign() | ast.AnnAssign() | ast.Return():
            return (node,)
        case ast.Expr():
            return (node,)
    return ()


def blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of statements within a statement."""
    for field in ("body", "orelse", "finalbody"):
        yield getattr(node, field, [])
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


class Package:
    """The statements of a tree's package, by function and by text."""

    def __init__(self, tree: Path) -> None:
        self.by_function: dict[tuple[str, str], list[Statement]] = defaultdict(list)
        self.by_text: dict[str, list[Statement]] = defaultdict(list)
        for path in sorted((tree / PACKAGE).rglob("*.py")):
            for statement in statements_of(tree, path):
                self.by_text[statement.text].append(statement)
                key = statement.function, statement.text
                self.by_function[key].append(statement)

    def twin(self, statement: Statement, present: Package) -> Statement | None:
        """Return the one statement here that is that of the present tree, or None."""
        key = statement.function, statement.text
        same = self.by_function[key]
        if len(same) == len(present.by_function[key]) == 1:
            return same[0]
        anywhere = self.by_text[statement.text]
        once = len(anywhere) == len(present.by_text[statement.text]) == 1
        return anywhere[0] if once and len(statement.text) >= ENOUGH else None


def draw(after: Path, before: Path, count: int, seed: int) -> list[Mutant]:
    """Draw mutants that both trees have, at most one for each statement.

    Within a room, a file is drawn, then a function of it, then a change, so that long
    files do not outweigh the others. The rooms come in no order.

    Returns:
        As many mutants of each room as its share of the count, or all that there are.
    """
    chance = random.Random(seed)
    present, past = Package(after), Package(before)
    drawn = []
    for room, wanted in quotas(count).items():
        pool = pool_of(room, present, past)
        for _ in range(wanted):
            if not pool:
                break
            path = chance.choice(sorted(pool))
            function = chance.choice(sorted(pool[path]))
            mutant = chance.choice(pool[path][function])
            drawn.append(mutant)
            rest = pool[path].pop(function)
            if rest := [m for m in rest if m.statement != mutant.statement]:
                pool[path][function] = rest
            if not pool[path]:
                del pool[path]
    chance.shuffle(drawn)
    return drawn


def pool_of(
    room: str, present: Package, past: Package
) -> dict[str, dict[str, list[Mutant]]]:
    """Return the mutants of a room by file and function."""
    pool: dict[str, dict[str, list[Mutant]]] = {}
    for statements in present.by_text.values():
        for statement in statements:
            if not statement.path.startswith(f"{PACKAGE / room}/"):
                continue
            if mutants := mutants_of(room, statement, past.twin(statement, present)):
                functions = pool.setdefault(statement.path, {})
                functions.setdefault(statement.function, []).extend(mutants)
    return pool


def quotas(count: int) -> dict[str, int]:
    """Divide a number of mutants among the rooms by their shares."""
    total, given, share = sum(ROOMS.values()), 0, 0
    divided = {}
    for room, weight in ROOMS.items():
        share += weight
        divided[room] = count * share // total - given
        given += divided[room]
    return divided


def mutants_of(room: str, after: Statement, before: Statement | None) -> list[Mutant]:
    """List the mutants of a statement and its twin."""
    if before is None:
        return []
    pairs = zip(after.edits(), before.edits(), strict=True)
    return [
        Mutant(room, after.function, after.text, change, here, there)
        for (change, here), (_, there) in pairs
    ]
