"""Questions about Python code that its syntax alone answers."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence


def own_methods(cls: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions that a class defines, not those of its bases."""
    for statement in cls.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement


def makes_table(statement: ast.stmt) -> bool:
    """Return whether a statement binds a table that is written out to one name."""
    if isinstance(statement, ast.Assign) and len(statement.targets) > 1:
        return False
    return isinstance(getattr(statement, "value", None), ast.Dict | ast.List)


def that_run(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that an import runs: not those for type checkers."""
    for statement in statements:
        if isinstance(statement, ast.If):
            yield from that_run(statement.orelse)
        else:
            yield statement


def names_alone(target: ast.expr) -> bool:
    """Return whether a target binds names and nothing else."""
    if isinstance(target, ast.Tuple | ast.List):
        return all(map(names_alone, target.elts))
    if isinstance(target, ast.Starred):
        return names_alone(target.value)
    return isinstance(target, ast.Name)


def names_in(node: ast.AST) -> Iterator[str]:
    """Yield the names in a target, or in anything else."""
    return (part.id for part in ast.walk(node) if isinstance(part, ast.Name))


def arguments(call: ast.Call) -> Iterator[ast.expr]:
    """Yield the arguments of a call."""
    yield from call.args
    yield from (keyword.value for keyword in call.keywords)


def within(call: ast.Call) -> Iterator[ast.AST]:
    """Yield what stands in the arguments of a call; functions called are not given."""
    pending: list[ast.AST] = [*arguments(call)]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.Call):
            pending += arguments(node)
        elif not isinstance(node, ast.Lambda | ast.Attribute):
            pending += ast.iter_child_nodes(node)


def evaluated(expression: ast.expr) -> Iterator[ast.AST]:
    """Yield what is evaluated with an expression: not the bodies of lambdas."""
    pending: list[ast.AST] = [expression]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.Lambda):
            pending += [d for d in (*node.args.defaults, *node.args.kw_defaults) if d]
        else:
            pending += ast.iter_child_nodes(node)


def dotted_names(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the names that are read when something is evaluated, with attributes."""
    pending: list[ast.AST] = [node]
    while pending:
        part = pending.pop()
        inner = part
        while isinstance(inner, ast.Attribute):
            inner = inner.value
        if isinstance(inner, ast.Name):
            if isinstance(inner.ctx, ast.Load) and isinstance(part, ast.expr):
                yield part
        elif isinstance(inner, ast.Lambda):
            pending += [d for d in (*inner.args.defaults, *inner.args.kw_defaults) if d]
        else:
            pending += ast.iter_child_nodes(inner)


def run_on_import(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield what runs with a statement of a module: no bodies of functions."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        yield node
        inner = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = [part for part in inner if part not in node.body]
        elif isinstance(node, ast.Lambda):
            inner.remove(node.body)
        pending += inner


def bound_within(expression: ast.expr) -> Iterator[str]:
    """Yield the names that comprehensions within an expression bind."""
    for node in evaluated(expression):
        if isinstance(node, ast.comprehension):
            yield from names_in(node.target)


def parameters(arguments: ast.arguments) -> Iterator[ast.arg]:
    """Yield the parameters of a function."""
    return (node for node in ast.walk(arguments) if isinstance(node, ast.arg))


def is_special(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether Python or a library calls a method by itself: `__x__`, `_x_`."""
    return method.name.startswith("_") and method.name.endswith("_")


def class_names(cls: ast.ClassDef) -> set[str]:
    """Return the names that a class defines or assigns, not those of its bases."""
    assigned = (name for s in cls.body for name in assigned_names(s))
    return {*(method.name for method in own_methods(cls)), *assigned}


def assigned_names(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that an assignment in a class binds."""
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            yield from names_in(target)
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        yield from names_in(statement.target)


def assigns_special(statement: ast.stmt) -> bool:
    """Return whether an attribute of a class may be what Python calls by itself.

    As `__call__ = run`, which is no definition of a method.
    """
    value = getattr(statement, "value", None)
    is_data = value is not None and not any(
        isinstance(node, ast.Name | ast.Lambda) for node in ast.walk(value)
    )
    return not is_data and any(
        name.startswith("_") and name.endswith("_") and name != "_"
        for name in assigned_names(statement)
    )


def depends_on_order(cls: ast.ClassDef) -> bool:
    """Return whether names of a class mean something else in another order.

    A method is followed apart from what stands between it and the next.
    """
    methods: set[str] = set()
    others: set[str] = set()
    for member in cls.body:
        if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
            is_variant = any(_varies(decorator) for decorator in member.decorator_list)
            if member.name in methods and not is_variant:
                return True
            methods.add(member.name)
        else:
            others.update(assigned_names(member))
    return bool(methods & others)


def _varies(decorator: ast.expr) -> bool:
    """Return whether a decorator adds to a property, or is that of an overload."""
    last = getattr(decorator, "attr", getattr(decorator, "id", ""))
    return last in ("setter", "getter", "deleter", "overload")


def makes_code(statement: ast.stmt) -> bool:
    """Return whether an attribute of a class runs code when it is read or made."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    return assigns_special(statement) or any(
        isinstance(node, ast.Lambda)
        or (isinstance(node, ast.keyword) and node.arg == "default_factory")
        or (isinstance(node, ast.Name) and node.id.endswith("property"))
        for node in ast.walk(statement)
    )


def only_returns(statement: ast.stmt) -> bool:
    """Return whether a statement returns a name, or is a text."""
    if isinstance(statement, ast.Return):
        return isinstance(statement.value, ast.Name)
    return is_text(statement)


def is_text(statement: ast.stmt) -> bool:
    """Return whether a statement is a text alone."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def imported_in(statement: ast.stmt) -> dict[str, str]:
    """Return what imports anywhere in a statement bind, by the names that they give."""
    imported: dict[str, str] = {}
    for node in ast.walk(statement):
        if isinstance(node, ast.Import):
            for name in node.names:
                top = name.name.partition(".")[0]
                imported[name.asname or top] = name.name if name.asname else top
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imported |= {
                n.asname or n.name: f"{node.module}.{n.name}" for n in node.names
            }
    return imported
