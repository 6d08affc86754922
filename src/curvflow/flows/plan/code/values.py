"""Objects of a project that hold values, and compute with nothing but these.

Such as an instance of a data class with properties: to make one, or to ask it for an
attribute, changes nothing that another name of the project could notice.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection

from curvflow.flows.plan.code.modules import Module, bindings
from curvflow.flows.plan.code.normal import Meaning, Names, dotted
from curvflow.flows.plan.code.syntax import arguments, is_special, is_text

Means = Callable[[ast.expr], Meaning]
# Their functions return values, and keep none.
_MAKING = ("math", "numpy", "torch")
_CONSTANTS = re.compile(
    r"(numpy|torch)\.(bool|complex|float|int|uint)\w*|(math|numpy)\.(e|inf|nan|pi)"
)
# Methods of text, tables, numbers and arrays that leave them as they are.
_COMPUTING = frozenset(
    {
        *("all", "any", "argmax", "argmin", "count", "cumsum", "index", "item", "max"),
        *("mean", "min", "numel", "prod", "std", "sum", "tolist"),
        *("astype", "bit_length", "clone", "copy", "detach", "dim", "reshape"),
        *("get", "items", "keys", "values"),
        *("encode", "endswith", "format", "join", "lower", "removeprefix"),
        *("removesuffix", "replace", "split", "startswith", "strip", "upper"),
    }
)
_OF_PARTS = (
    *(ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.List, ast.Slice),
    *(ast.Subscript, ast.Tuple, ast.UnaryOp),
)


def is_value(node: ast.expr, means: Means, reading: Collection[str]) -> bool:
    """Return whether an expression is made of constants and a library's values alone.

    Args:
        node: the expression.
        means: the meaning of a dotted name.
        reading: builtins that change nothing that they are given.
    """
    match node:
        case ast.Constant():
            return True
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            inner = parts
        case ast.UnaryOp(operand=operand):
            inner = [operand]
        case ast.Name() | ast.Attribute():
            text = means(node).text
            return text in reading or bool(_CONSTANTS.fullmatch(text))
        case ast.Call(func=ast.Name() | ast.Attribute()):
            text = means(node.func).text
            is_making = text.partition(".")[0] in _MAKING and "random" not in text
            if not (is_making or text in reading or text == "dataclasses.field"):
                return False
            inner = list(arguments(node))
        case _:
            return False
    return all(is_value(part, means, reading) for part in inner)


def keeps_values(
    names: Names,
    home: Module,
    cls: ast.ClassDef,
    methods: Collection[str],
    reading: Collection[str],
) -> bool:
    """Return whether a class runs no code of the project but properties that compute.

    Its bases are judged by themselves. `methods` are those of all of them,
    which a property neither calls nor hands on.
    """
    bound = bindings(cls.body, home.package)
    return (
        not cls.keywords
        and not {"property"} & {*bound.assigned, *bound.imported}
        and all(names.spelt(home, base).definition for base in cls.bases)
        and all(_is_dataclass(names.spelt(home, d).text, d) for d in cls.decorator_list)
        and all(_is_tame(names, home, s, methods, reading) for s in cls.body)
    )


def _is_dataclass(text: str, decorator: ast.expr) -> bool:
    given = arguments(decorator) if isinstance(decorator, ast.Call) else ()
    return text == "dataclasses.dataclass" and all(
        isinstance(argument, ast.Constant) for argument in given
    )


def _is_tame(
    names: Names,
    home: Module,
    statement: ast.stmt,
    methods: Collection[str],
    reading: Collection[str],
) -> bool:
    match statement:
        case ast.Pass():
            return True
        case ast.AnnAssign(target=ast.Name(), value=value):

            def means(node: ast.expr) -> Meaning:
                return names.spelt(home, node)

            return value is None or is_value(value, means, reading)
        case ast.FunctionDef(decorator_list=[ast.Name() as decorator]):
            return (
                names.spelt(home, decorator).text == "?property"
                and not is_special(statement)
                and _computes(names, home, statement, methods, reading)
            )
        case ast.FunctionDef(decorator_list=[]):
            return not is_special(statement)
    return is_text(statement)


def _computes(
    names: Names,
    home: Module,
    function: ast.FunctionDef,
    methods: Collection[str],
    reading: Collection[str],
) -> bool:
    """Return whether a property returns what it computes of its object's values."""
    parameters = [argument.arg for argument in function.args.args]
    body = [statement for statement in function.body if not is_text(statement)]
    if len(body) != 1 or not isinstance(body[0], ast.Return) or len(parameters) != 1:
        return False

    def is_pure(node: ast.AST) -> bool:
        chain, root = dotted(node) if isinstance(node, ast.expr) else ([], None)
        is_own = isinstance(root, ast.Name) and root.id == parameters[0]
        if isinstance(node, ast.Constant):
            return True
        if is_own and chain:
            return chain[0] not in methods
        if isinstance(node, ast.Call):
            chain, root = dotted(node.func)
            is_own = isinstance(root, ast.Name) and root.id == parameters[0]
            is_read = names.spelt(home, node.func).text in reading and not is_own
            is_theirs = is_own and len(chain) > 1 and chain[0] not in methods
            is_theirs = is_theirs and chain[-1] in _COMPUTING
            return (is_read or is_theirs) and all(map(is_pure, arguments(node)))
        return isinstance(node, _OF_PARTS) and all(
            is_pure(part)
            for part in ast.iter_child_nodes(node)
            if isinstance(part, ast.expr)
        )

    return body[0].value is not None and is_pure(body[0].value)
