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
from collections.abc import Callable, Collection, Sequence
from typing import Any

from curvflow.flows.plan.code.libraries import changes_state, may_be_filled
from curvflow.flows.plan.code.modules import (
    FUNCTIONS,
    ON_IMPORT,
    Module,
    bindings,
    imports,
    is_main,
)
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
    assigns_special,
    bound_within,
    depends_on_order,
    dotted_names,
    evaluated,
    is_special,
    makes_table,
    names_alone,
    names_in,
    only_returns,
    own_methods,
    parameters,
    run_on_import,
    that_run,
    within,
)

_ARRAYS = ("numpy", "torch")
_CHANGING = frozenset(
    {
        *("copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask"),
        *("singledispatch", "singledispatchmethod", "register"),
        *("fromfunction", "apply_along_axis", "apply_over_axes", "piecewise"),
    }
)
_DECORATING = frozenset(
    {*HARMLESS, "collections", "contextlib", "functools", "jax", "numba", "types"}
)
_SETTING = (["setter"], ["getter"], ["deleter"])  # of a property
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
# They run when a class is made, of a base and of a metaclass.
_SUBCLASSING = frozenset({"__init_subclass__", "__class_getitem__", "__mro_entries__"})
_CREATING = frozenset({"__init__", "__new__", "__prepare__", "mro", *_SUBCLASSING})
# Methods of a metaclass that do not run where its class is bound, or is asked for an
# attribute.
_READ = frozenset({"__contains__", "__iter__", "__len__", "__repr__", "__str__"})
_MADE: frozenset[str] = frozenset()  # all may run where a class is called or derived
_HOOKS = frozenset({"__getattr__", "__dir__"})  # of a module
# With an object of a class of the project in it, each may run a method of the class.
_OPERATING = (
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Subscript, ast.IfExp),
    *(ast.FormattedValue, ast.comprehension, ast.Starred, ast.Dict, ast.Set),
    *(ast.DictComp, ast.SetComp),
)
_FILLED = ("?dict.fromkeys",)
_PAUSING = (ast.Yield, ast.YieldFrom, ast.Await)


class _DoubtError(Exception):
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


def doubt_of(names: Names, module: Module, *, alone: bool = False) -> str:
    """Return the first doubt about a module, with its line; empty if there is none.

    Of a module `alone` those of others, whose variables it uses, are no reason.
    """
    try:
        _Judge(names, module, alone=alone).judge()
    except _DoubtError as doubt:
        return str(doubt)
    return ""


class _Judge:
    def __init__(
        self,
        names: Names,
        module: Module,
        within: Collection[str] = (),
        depth: int = 5,
        *,
        alone: bool = False,
    ) -> None:
        self._names, self._module, self._alone = names, module, alone
        self._objects = Objects(names, self._is_filled)
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
            raise _DoubtError(statement, f"`{word}` at module level")
        check(self, statement)

    def _definition(self, statement: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        # Names that it says for type checkers it gives are followed where they lead.
        if statement.name in _HOOKS and not self._module.lazy:
            raise _DoubtError(statement, f"a module's {statement.name}")
        self._function(statement)

    def _import(self, statement: ast.Import | ast.ImportFrom | ast.Pass) -> None:
        names = [] if isinstance(statement, ast.Pass) else statement.names
        if any(alias.name == "*" for alias in names) and not self._is_known(statement):
            raise _DoubtError(statement, "import *")
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
            raise _DoubtError(statement, "a condition at module level")

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
                raise _DoubtError(inner, "`Try` around more than imports")
            self._statement(inner)
        if statement.finalbody:
            raise _DoubtError(statement, "`Try` with `finally`")

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
        self._annotation(function.returns)
        for argument in ast.walk(arguments):
            if isinstance(argument, ast.arg):
                self._annotation(argument.annotation)

    def _annotation(self, annotation: ast.expr | None) -> None:
        if annotation is not None and self._has_annotations:
            for node in ast.walk(annotation):
                if isinstance(node, ast.Call | ast.NamedExpr):
                    raise _DoubtError(node, "an annotation that runs code")
                if isinstance(node, _OPERATING):
                    self._operates(node)

    def _decorator(self, decorator: ast.expr) -> None:
        meaning = self._meaning(decorator)
        is_known = (
            meaning.text in KEEPING or meaning.text.partition(".")[0] in _DECORATING
        )
        if meaning.text.rpartition(".")[2] in _CHANGING or not (
            is_own(meaning.text) or is_known or self._only_wraps(decorator)
        ):
            raise _DoubtError(decorator, "a decorator that may register")
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
            raise _DoubtError(cls, "an enumeration with a method of its own making")
        for keyword in cls.keywords:
            self._runs(keyword.value)
            if keyword.arg == "metaclass" and (
                not self._objects.is_named(self._meaning(keyword.value))
                or self._objects.has(self._meaning(keyword.value), _CREATING)
            ):
                raise _DoubtError(cls, "a metaclass that may register")
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
            raise _DoubtError(cls, f"`{cls.name}`, whose names depend on their order")
        for base in cls.bases:
            meaning = self._base(base)
            if not self._objects.is_named(meaning):
                raise _DoubtError(cls, "a base that no name tells")
            if self._objects.has(meaning, _SUBCLASSING) or self._objects.is_live(
                meaning, _MADE
            ):
                raise _DoubtError(cls, "a subclass that its base may register")
            self._runs(base)

    def _member(self, cls: ast.ClassDef, statement: ast.stmt) -> None:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(statement, {s.name for s in own_methods(cls)})
            case ast.ClassDef():
                self._class(statement)
            case ast.Assign(targets=targets, value=value):
                if not all(map(names_alone, targets)):
                    raise _DoubtError(statement, "an assignment to a part of something")
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
                raise _DoubtError(statement, f"`{word}` in a class")

    # expressions that run on import

    def _runs(self, expression: ast.expr) -> None:
        """Refuse an expression that may change another name when it is evaluated."""
        around = self._hidden
        self._hidden = {*around, *bound_within(expression)}
        nodes = list(evaluated(expression))
        # Bound as it is, or asked for an attribute.
        idle = [expression, *(n.value for n in nodes if isinstance(n, ast.Attribute))]
        for node in nodes:
            if isinstance(node, ast.NamedExpr):
                raise _DoubtError(node, "an assignment within an expression")
            if isinstance(node, ast.Call):
                self._call(node)
            if isinstance(node, _OPERATING):
                self._operates(node)
            if isinstance(node, ast.Attribute):
                self._asks(node)
            self._hiding(node)
            if isinstance(node, ast.Name) and self._objects.is_live(
                self._meaning(node), _READ if node in idle else _MADE
            ):
                raise _DoubtError(node, f"`{node.id}`, whose class may run code")
        self._hidden = around

    def _operates(self, node: ast.AST) -> None:
        """Refuse objects of the project's classes: an operator may run their code."""
        for named in dotted_names(node):
            is_unknown = bool(self._unknown & set(names_in(named)))
            if is_unknown or self._objects.may_be_instance(self._meaning(named)):
                word = ast.unparse(named)
                raise _DoubtError(node, f"`{word}`, an object that may run code")

    def _asks(self, node: ast.Attribute) -> None:
        """Refuse an object of the project's classes: a property may run their code."""
        _, root = dotted(node)
        if not isinstance(root, ast.Name):
            return
        if root.id not in self._hidden:
            meaning = self._meaning(node)
            self._hooked(node, meaning)
            if self._objects.gives_instance(meaning):
                raise _DoubtError(node, f"`{ast.unparse(node)}`, which may run code")
        if root.id not in self._hidden or root.id in self._unknown:
            self._operates(node.value)

    def _hooked(self, node: ast.AST, meaning: Meaning) -> None:
        """Refuse a name that a module makes on access."""
        home = self._names.module(meaning.within) if meaning.within else None
        if home is not None and "__getattr__" in home.parts:
            raise _DoubtError(node, f"a name that {home.name}'s __getattr__ gives")

    def _call(self, call: ast.Call) -> None:
        chain, root = dotted(call.func)
        if isinstance(root, ast.Constant | ast.JoinedStr) or self._is_own_text(root):
            self._text(call)
            return
        if isinstance(root, ast.Call) and (text := self._of_result(root, chain)):
            self._library(call, text, of_result=True)
            return
        if not isinstance(root, ast.Name):
            raise _DoubtError(call, "a call of what no name tells")
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
                raise _DoubtError(call, f"a call of the project's `{root.id}`")
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
        judge = _Judge(self._names, home, within, self._depth - 1, alone=self._alone)
        try:
            judge._body(function.body)
        except _DoubtError:
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
                    raise _DoubtError(statement, "a statement with effects")
            for value in values:
                if any(isinstance(n, _PAUSING) for n in ast.walk(value)):
                    raise _DoubtError(statement, "a function that pauses")
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
            raise _DoubtError(call, f"a call of `{text[1:]}`")
        # What a table is to hold for each key is kept, not called.
        read = ast.Call(call.func, call.args[:1], []) if text in _FILLED else call
        if any(map(self._may_be_code, within(read))):
            raise _DoubtError(call, f"`{text[1:]}` with code given to it")

    def _library(self, call: ast.Call, text: str, *, of_result: bool = False) -> None:
        if text in LOADING and not loaded_module(call):
            raise _DoubtError(call, "a module of a computed name")
        if changes_state(text) and not (self._counts or of_result or text in KEEPING):
            word = text.rpartition(".")[2]
            raise _DoubtError(call, f"`{word}` may change a library's state")
        last = text.rpartition(".")[2]
        given = list(within(call))
        into = any(keyword.arg == "out" for keyword in call.keywords)
        hands_code = text not in KEEPING and any(map(self._may_be_code, given))
        is_known = text in KEEPING or text.partition(".")[0] in HARMLESS
        hands_variable = not is_known and any(map(self._is_variable, given))
        is_changing = last in _CHANGING or last.endswith("_") or ".utils." in text
        filled = (name for a in may_be_filled(call, text) for name in dotted_names(a))
        is_changing |= any(map(self._may_be_array, filled))
        if into or hands_code or hands_variable or is_changing:
            raise _DoubtError(call, f"`{last}` may change what it is given")

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

    def _is_filled(self, home: Module) -> bool:
        """Return whether another module's variable may hold what no text shows."""
        return (
            not self._alone
            and home.name != self._module.name
            and self._names.answer(
                home.name, lambda: doubt_of(self._names, home, alone=True)
            )
            != ""
        )

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
            raise _DoubtError(node, f"`{_last(node)}`")


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
