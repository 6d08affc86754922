"""Expressions that run when a module is imported, and what they may change."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Sequence
from functools import partial

from curvflow.flows.plan.code.libraries import changes_state, may_be_filled
from curvflow.flows.plan.code.modules import FUNCTIONS, Module, bindings
from curvflow.flows.plan.code.normal import (
    LOADING,
    Meaning,
    Names,
    dotted,
    loaded_module,
    spelt_in,
)
from curvflow.flows.plan.code.objects import (
    HARMLESS,
    KEEPING,
    LOCAL,
    READING,
    Objects,
    is_own,
)
from curvflow.flows.plan.code.syntax import (
    arguments,
    bound_within,
    dotted_names,
    evaluated,
    names_in,
    parameters,
    within,
)

_ARRAYS = ("numpy", "torch")
CHANGING = frozenset(
    {
        *("copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask"),
        *("singledispatch", "singledispatchmethod", "register"),
        *("fromfunction", "apply_along_axis", "apply_over_axes", "piecewise"),
    }
)
# With one of these any name of the module can be meant, or replaced.
_HIDING = frozenset(
    {
        *("?exec", "?eval", "?globals", "?__import__", "?breakpoint", "sys.modules"),
        *("sys._getframe", "inspect.currentframe", "inspect.stack", "gc.get_objects"),
        *("inspect.getmodule", "inspect.trace", "gc.get_referrers"),
        *(f"builtins.{name}" for name in ("exec", "eval", "globals", "__import__")),
    }
)
_HIDDEN = frozenset({"__subclasses__", "__globals__", "__builtins__", "f_globals"})
# Methods of a metaclass that do not run where its class is bound, or is asked for an
# attribute.
_READ = frozenset({"__contains__", "__iter__", "__len__", "__repr__", "__str__"})
MADE: frozenset[str] = frozenset()  # all may run where a class is called or derived
# With an object of a class of the project in it, each may run a method of the class.
OPERATING = (
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Subscript, ast.IfExp),
    *(ast.FormattedValue, ast.comprehension, ast.Starred, ast.Dict, ast.Set),
    *(ast.DictComp, ast.SetComp),
)
_FILLED = ("?dict.fromkeys",)
_PAUSING = (ast.Yield, ast.YieldFrom, ast.Await)


class DoubtError(Exception):
    """A statement that is not certain."""

    def __init__(self, node: ast.AST, what: str) -> None:
        super().__init__(f"line {getattr(node, 'lineno', 0)}: {what}")


def hiding_of(names: Names, module: Module, statements: Sequence[ast.stmt]) -> str:
    """Return what may mean or replace any name of a module where it is called.

    With its line; empty if there is nothing such in functions and classes.
    """
    for statement in statements:
        for text, node in spelt_in(names, module, statement):
            if _hides(text, node):
                return f"line {node.lineno}: `{_last(node)}`"
    return ""


def _hides(text: str, node: ast.Name | ast.Attribute) -> bool:
    return text in _HIDING or _last(node) in _HIDDEN


def _last(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


# Whether a variable of the second module may hold what no text shows, asked by the
# first.
Fills = Callable[[Module, Module], bool]


class ExpressionJudge:
    """Judge of expressions that run on import: they may change no other name."""

    def __init__(
        self,
        names: Names,
        module: Module,
        fills: Fills,
        within: Collection[str] = (),
        depth: int = 5,
    ) -> None:
        self._names, self._module, self._fills = names, module, fills
        self._objects = Objects(names, partial(fills, module))
        # Of a function that is called: its own names may stand for anything.
        self._unknown, self._depth = frozenset(within), depth
        # Names of classes and comprehensions around, which hide those of the module.
        self._hidden: set[str] = set()
        # Of a statement that counts for whoever imports the module.
        self._counts = False
        self._has_annotations = not any(
            isinstance(node, ast.ImportFrom)
            and node.module == "__future__"
            and any(alias.name == "annotations" for alias in node.names)
            for node in module.body
        )

    def _runs(self, expression: ast.expr) -> None:
        """Refuse an expression that may change another name when it is evaluated."""
        around = self._hidden
        self._hidden = {*around, *bound_within(expression)}
        nodes = list(evaluated(expression))
        # Bound as it is, or asked for an attribute.
        idle = [expression, *(n.value for n in nodes if isinstance(n, ast.Attribute))]
        for node in nodes:
            if isinstance(node, ast.NamedExpr):
                raise DoubtError(node, "an assignment within an expression")
            if isinstance(node, ast.Call):
                self._call(node)
            if isinstance(node, OPERATING):
                self._operates(node)
            if isinstance(node, ast.Attribute):
                self._asks(node)
            self._hiding(node)
            if isinstance(node, ast.Name) and self._objects.is_live(
                self._meaning(node), _READ if node in idle else MADE
            ):
                raise DoubtError(node, f"`{node.id}`, whose class may run code")
        self._hidden = around

    def _operates(self, node: ast.AST) -> None:
        """Refuse objects of the project's classes: an operator may run their code."""
        for named in dotted_names(node):
            is_unknown = bool(self._unknown & set(names_in(named)))
            if is_unknown or self._objects.may_be_instance(self._meaning(named)):
                word = ast.unparse(named)
                raise DoubtError(node, f"`{word}`, an object that may run code")

    def _asks(self, node: ast.Attribute) -> None:
        """Refuse an object of the project's classes: a property may run their code."""
        _, root = dotted(node)
        if not isinstance(root, ast.Name):
            return
        if root.id not in self._hidden:
            meaning = self._meaning(node)
            self._hooked(node, meaning)
            if self._objects.gives_instance(meaning):
                raise DoubtError(node, f"`{ast.unparse(node)}`, which may run code")
        if root.id not in self._hidden or root.id in self._unknown:
            self._operates(node.value)

    def _hooked(self, node: ast.AST, meaning: Meaning) -> None:
        """Refuse a name that a module makes on access."""
        home = self._names.module(meaning.within) if meaning.within else None
        if home is not None and "__getattr__" in home.parts:
            raise DoubtError(node, f"a name that {home.name}'s __getattr__ gives")

    def _call(self, call: ast.Call) -> None:
        chain, root = dotted(call.func)
        if isinstance(root, ast.Constant | ast.JoinedStr) or self._is_own_text(root):
            self._text(call)
            return
        if isinstance(root, ast.Call) and (text := self._of_result(root, chain)):
            self._library(call, text, of_result=True)
            return
        if not isinstance(root, ast.Name):
            raise DoubtError(call, "a call of what no name tells")
        meaning = self._meaning(call.func)
        if meaning.text.startswith("?"):
            self._builtin(call, meaning.text)
        elif is_own(meaning.text):
            pass
        elif meaning.module is not None or meaning.definition or meaning.within:
            is_quiet = (
                self._objects.is_plain_class(meaning)
                or self._is_quiet(meaning)
                or self._objects.holds_values(
                    self._module, call, meaning, self._meaning
                )
            )
            if chain or not is_quiet:
                raise DoubtError(call, f"a call of the project's `{root.id}`")
        else:
            self._library(call, meaning.text)

    def _text(self, call: ast.Call) -> None:
        """Refuse objects of the project's classes, which a text may take apart."""
        for argument in arguments(call):
            self._operates(argument)

    def _is_quiet(self, meaning: Meaning) -> bool:
        """Return whether calling a function of the project changes nothing.

        It binds local names, to what would raise no doubt in its module if its
        parameters might be anything, and returns.
        """
        parts = self._objects.parts(meaning)
        home = self._names.module((meaning.definition or "").partition(":")[0])
        function = parts[0] if len(parts) == 1 else None
        if home is None or not self._depth or not isinstance(function, ast.FunctionDef):
            return False
        inner = bindings(function.body, home.package)
        given = {argument.arg for argument in parameters(function.args)}
        if (
            inner.outside
            or inner.enclosing
            or inner.imported
            or function.decorator_list
        ):
            return False
        within = {*inner.assigned, *given}
        judge = type(self)(self._names, home, self._fills, within, self._depth - 1)
        try:
            judge._body(function.body)
        except DoubtError:
            return False
        return True

    def _body(self, statements: Sequence[ast.stmt]) -> None:
        """Refuse statements of a function that may change more than its own names."""
        self._hidden = set(self._unknown)
        for statement in statements:
            match statement:
                case (
                    ast.Return(value=value)
                    | ast.AnnAssign(target=ast.Name(), value=value)
                ):
                    values = [value] if value else []
                case ast.Assign(targets=[ast.Name()], value=value):
                    values = [value]
                case ast.If(test=test, body=body, orelse=orelse):
                    values = [ast.IfExp(test, test, test)]
                    self._body([*body, *orelse])
                case ast.Expr(value=ast.Constant()) | ast.Pass():
                    values = []
                case _:
                    raise DoubtError(statement, "a statement with effects")
            for value in values:
                if any(isinstance(n, _PAUSING) for n in ast.walk(value)):
                    raise DoubtError(statement, "a function that pauses")
                self._runs(value)

    def _is_own_text(self, root: ast.expr) -> bool:
        """Return whether Python gives a module this name, with a text."""
        return (
            isinstance(root, ast.Name)
            and root.id in ("__file__", "__name__")
            and not {root.id} & {*self._module.parts, *self._hidden}
        )

    def _of_result(self, call: ast.Call, chain: list[str]) -> str:
        """Return the method called on the result of a call, where it is an array's."""
        text = self._meaning(call.func).text
        if text == "functools.lru_cache" and not chain:
            return text
        is_array = text.partition(".")[0] in _ARRAYS and chain
        return ".".join([text, *chain]) if is_array else ""

    def _builtin(self, call: ast.Call, text: str) -> None:
        if text in KEEPING or (text == "?type" and len(call.args) == 1):
            return
        if text == "?getattr" and len(call.args) > 1:
            self._operates(call.args[0])
            return  # of a module all is taken
        if text not in READING:
            raise DoubtError(call, f"a call of `{text[1:]}`")
        # What a table is to hold for each key is kept, not called.
        read = ast.Call(call.func, call.args[:1], []) if text in _FILLED else call
        if any(map(self._may_be_code, within(read))):
            raise DoubtError(call, f"`{text[1:]}` with code given to it")

    def _library(self, call: ast.Call, text: str, *, of_result: bool = False) -> None:
        if text in LOADING and not loaded_module(call):
            raise DoubtError(call, "a module of a computed name")
        if changes_state(text) and not (self._counts or of_result or text in KEEPING):
            word = text.rpartition(".")[2]
            raise DoubtError(call, f"`{word}` may change a library's state")
        last = text.rpartition(".")[2]
        given = list(within(call))
        into = any(keyword.arg == "out" for keyword in call.keywords)
        hands_code = text not in KEEPING and any(map(self._may_be_code, given))
        is_known = text in KEEPING or text.partition(".")[0] in HARMLESS
        hands_variable = not is_known and any(map(self._is_variable, given))
        is_changing = last in CHANGING or last.endswith("_") or ".utils." in text
        filled = (name for a in may_be_filled(call, text) for name in dotted_names(a))
        is_changing |= any(map(self._may_be_array, filled))
        if into or hands_code or hands_variable or is_changing:
            raise DoubtError(call, f"`{last}` may change what it is given")

    def _may_be_code(self, node: ast.AST) -> bool:
        """Return whether something given to a call may be a function to be called."""
        if isinstance(node, ast.Lambda):
            arguments = node.args
            if arguments.defaults or arguments.kw_defaults:
                return True
            around = self._hidden
            self._hidden = {*around, *(a.arg for a in parameters(arguments))}
            self._runs(node.body)  # it may be called at once
            self._hidden = around
            return False
        if isinstance(node, ast.Attribute):
            _, root = dotted(node)
            return isinstance(root, ast.Name) and (
                root.id in self._hidden
                or bool(self._objects.parts(self._meaning(root)))
            )
        if not isinstance(node, ast.Name):
            return False
        if node.id in self._hidden:
            return node.id in self._unknown
        return self._objects.is_code(self._meaning(node))

    # what names mean

    def _meaning(self, node: ast.expr) -> Meaning:
        _, root = dotted(node.func if isinstance(node, ast.Call) else node)
        if isinstance(root, ast.Name) and root.id in self._hidden:
            return LOCAL
        return self._names.spelt(self._module, node)

    def _is_variable(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Name):
            return False
        if node.id in self._unknown:
            return True
        parts = self._objects.parts(self._meaning(node))
        return any(not isinstance(p, (*FUNCTIONS, ast.ClassDef)) for p in parts)

    def _may_be_array(self, variable: ast.expr) -> bool:
        """Return whether a variable may be an array: all but numbers and texts."""
        meaning = self._meaning(variable)
        parts = self._objects.parts(meaning)
        if meaning is LOCAL or meaning.within:
            return True
        values = [getattr(part, "value", None) for part in parts]
        return not all(isinstance(value, ast.Constant) for value in values)

    # what is doubtful wherever it runs on import

    def _hiding(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name | ast.Attribute) and _hides(
            self._meaning(node).text, node
        ):
            raise DoubtError(node, f"`{_last(node)}`")
