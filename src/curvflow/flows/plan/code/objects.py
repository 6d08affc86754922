"""Meanings of names of a project: objects, functions, classes.

All that no text shows is taken to do harm.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import partial

from curvflow.flows.plan.code.modules import FUNCTIONS, Module
from curvflow.flows.plan.code.normal import Meaning, Names
from curvflow.flows.plan.code.sources import OWN
from curvflow.flows.plan.code.syntax import (
    arguments,
    assigned_names,
    class_names,
    dotted_names,
    is_special,
    is_text,
    makes_code,
    names_in,
    own_methods,
)
from curvflow.flows.plan.code.values import Means, is_value, keeps_values

# They read their arguments, and call nothing that is given to them.
READING = frozenset(
    f"?{name}"
    for name in (
        *("bytes.fromhex", "dict.fromkeys", "float.fromhex", "str.maketrans"),
        *("abs", "all", "any", "bool", "bytes", "complex", "dict", "divmod"),
        *("enumerate", "float", "format", "frozenset", "hasattr", "int"),
        *("isinstance", "issubclass", "len", "list", "max", "min", "object", "pow"),
        *("print", "range", "repr", "reversed", "round", "set", "slice", "sorted"),
        *("str", "sum", "tuple", "zip"),
    )
)
# They keep a function that is given to them for later.
KEEPING = frozenset(
    {
        *("?property", "?staticmethod", "?classmethod", "collections.defaultdict"),
        *("functools.partial", "functools.lru_cache", "functools.cache"),
        *("functools.cached_property", "functools.wraps", "functools.total_ordering"),
        *("dataclasses.field", "dataclasses.replace"),
        *("numpy.vectorize", "torch.vmap", "typing.NewType", "typing.TypeVar"),
        *("pydantic.AfterValidator", "pydantic.BeforeValidator", "pydantic.Field"),
        *("pydantic.Discriminator", "pydantic.PlainValidator", "torch.compile"),
        "pydantic.WrapValidator",
    }
)
# Their functions neither change nor call what they are given, but for the names below.
HARMLESS = frozenset(
    {
        *("abc", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions"),
        *("json", "logging", "math", "numpy", "os", "pathlib", "platform", "pydantic"),
        *("re", "string", "time", "torch", "typing", "typing_extensions", "warnings"),
        *("xarray", OWN),
    }
)
# Objects of Python's own, whatever they are bound by.
_VARIABLES = frozenset(
    f"{home}.{name}"
    for home in ("typing", "typing_extensions")
    for name in ("ParamSpec", "TypeVar", "TypeVarTuple")
)
# Of classes, and what all functions have.
_METACLASSES = frozenset({"?type", "abc.ABCMeta", "enum.EnumMeta", "enum.EnumType"})
_OF_FUNCTIONS = frozenset({"__doc__", "__module__", "__name__", "__qualname__"})
# Their classes call no method by a name of its own when an object is made, but
# pydantic's those that follow.
_QUIET_BASES = frozenset(
    {"abc", "enum", "pydantic", "typing", "typing_extensions", OWN}
)
_CALLED = frozenset({"model_post_init"})
LOCAL = Meaning("?of this scope")


def is_own(text: str) -> bool:
    """Return whether a name is one of this package."""
    return text.startswith((f"{OWN}.", f"{OWN}:"))


class Objects:
    """Meanings of names of a project, by the text that binds them.

    Attributes:
        names: of the project.
        is_filled: whether a variable of a module may hold a value that no text shows.
    """

    def __init__(self, names: Names, is_filled: Callable[[Module], bool]) -> None:
        """Take the names, and what says which modules fill variables unseen."""
        self._names, self._is_filled = names, is_filled

    def may_be_instance(self, meaning: Meaning, depth: int = 5) -> bool:
        """Return whether a name of the project may stand for an object of its classes.

        Those of classes without special methods run nothing by themselves.
        """
        if is_own(meaning.text) or not (meaning.definition or meaning.within):
            return False
        full = meaning.definition or ""
        home, parts = self._names.module(full.partition(":")[0]), self.parts(meaning)
        if home is None or not parts or depth == 0:
            return True
        inner = meaning.text.removeprefix(full).lstrip(".").partition(".")[0]
        return any(self._holds_instance(home, p, inner, depth - 1) for p in parts)

    def _holds_instance(
        self, home: Module, part: ast.stmt, inner: str, depth: int
    ) -> bool:
        if isinstance(part, FUNCTIONS):
            is_replaced = any(
                self._names.spelt(home, decorator).definition
                for decorator in part.decorator_list
            )
            return is_replaced or bool(inner and inner not in _OF_FUNCTIONS)
        if not isinstance(part, ast.ClassDef):
            return self._is_filled(home) or self._makes_instance(home, part, depth)
        if not inner:
            return False
        cls = Meaning(f"{home.name}:{part.name}", f"{home.name}:{part.name}")
        is_plain = self.is_plain_class(cls)
        values = [s for s in part.body if not isinstance(s, FUNCTIONS)]
        return not is_plain or any(
            self._makes_instance(home, s, depth) for s in values if not is_text(s)
        )

    def _makes_instance(self, home: Module, made: ast.AST, depth: int) -> bool:
        """Return whether an object of a project's class may come of a statement."""
        for node in ast.walk(made):
            if isinstance(node, ast.Call):
                meaning = self._names.spelt(home, node.func)
                if meaning.text in _VARIABLES:
                    continue
                if meaning.text in KEEPING or meaning.text == "?":
                    return True
                if is_own(meaning.text):
                    continue
                is_theirs = meaning.definition or meaning.module or meaning.within
                if is_theirs and not (
                    self.is_plain_class(meaning)
                    or self.holds_values(home, node, meaning)
                ):
                    return True
        named = dotted_names(getattr(made, "value", None) or made)
        return any(
            self.may_be_instance(self._names.spelt(home, name), depth) for name in named
        )

    def gives_instance(self, meaning: Meaning) -> bool:
        """Return whether an attribute of a class may be an object that acts.

        As one with `__get__`, on access through the class.
        """
        full = meaning.definition or ""
        name = meaning.text.removeprefix(full).lstrip(".").partition(".")[0]
        return bool(full and name) and any(
            self._makes_instance(home, member, 4)
            for home, cls in self.classes(Meaning(full, full))
            if home is not None and isinstance(cls, ast.ClassDef)
            for member in cls.body
            if name in assigned_names(member)
        )

    def is_code(self, meaning: Meaning, depth: int = 5) -> bool:
        """Return whether a name of the project may stand for a function."""
        if is_own(meaning.text) or not meaning.definition:
            return False
        home = self._names.module(meaning.definition.partition(":")[0])
        parts = self.parts(meaning)
        return (
            home is None
            or not parts
            or any(depth == 0 or not self._is_data(home, part, depth) for part in parts)
        )

    def _is_data(self, home: Module, part: ast.stmt, depth: int) -> bool:
        """Return whether a statement binds its names to data that is no function."""
        if not isinstance(part, ast.Assign | ast.AnnAssign) or part.value is None:
            return False
        pending: list[ast.AST] = [part.value]
        while pending:
            node = pending.pop()
            if not self._is_no_code(home, node, depth):
                return False
            if isinstance(node, ast.Call):
                pending += arguments(node)
            elif not isinstance(node, ast.Attribute):
                pending += ast.iter_child_nodes(node)
        return True

    def _is_no_code(self, home: Module, node: ast.AST, depth: int) -> bool:
        """Return whether a part of an expression is no function of the project."""
        if isinstance(node, ast.Call):
            text = self._names.spelt(home, node.func).text
            return text in READING or text.partition(".")[0] in HARMLESS
        if isinstance(node, ast.Attribute):
            meaning = self._names.spelt(home, node)
            return not meaning.definition and not meaning.text.startswith("?")
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            return not self.is_code(self._names.spelt(home, node), depth - 1)
        return not isinstance(node, ast.Lambda)

    def parts(self, meaning: Meaning) -> list[ast.stmt]:
        """Return the statements that bind a name of the project."""
        home, _, name = (meaning.definition or "").partition(":")
        module = self._names.module(home) if home else None
        parts = module.parts.get(name, ()) if module else ()
        return [part.statement for part in parts]

    def classes(self, meaning: Meaning) -> Iterator[tuple[Module | None, ast.stmt]]:
        """Yield what a name of the project is bound to, a class with its bases."""
        if is_own(meaning.text) or not meaning.definition:
            return
        module = self._names.module(meaning.definition.partition(":")[0])
        for part in self.parts(meaning):
            yield module, part
            for base in part.bases if isinstance(part, ast.ClassDef) else ():
                if module is None:
                    continue
                if self.is_named(meaning := self.base(module, base)):
                    yield from self.classes(meaning)
                else:
                    yield module, ast.Expr(base)

    def base(self, home: Module, base: ast.expr) -> Meaning:
        """Return what a base of a class means, without what stands in brackets."""
        bare = base.value if isinstance(base, ast.Subscript) else base
        return self._names.spelt(home, bare)

    def is_named(self, base: Meaning) -> bool:
        """Return whether a base, or a metaclass, is a name for all that it is.

        Not an entry of a table, a choice, or a class within another.
        """
        return base.text not in ("?", LOCAL.text) and (
            base.text == base.definition or not (base.definition or base.within)
        )

    def has(self, cls: Meaning, hooks: frozenset[str]) -> bool:
        """Return whether a class of the project may have one of these methods."""
        return any(
            not isinstance(part, ast.ClassDef) or hooks & class_names(part)
            for _, part in self.classes(cls)
        )

    def is_live(self, meaning: Meaning, harmless: frozenset[str]) -> bool:
        """Return whether a class of the project may run code where it is only named.

        Its metaclass, or a hook of its own, may act when it is called, taken apart or
        asked for an attribute; `harmless` are methods of a metaclass that do not.
        """
        return any(
            isinstance(cls, ast.ClassDef)
            and (
                "__class_getitem__" in class_names(cls)
                or not self._has_tame_metaclass(home, cls, harmless)
            )
            for home, cls in self.classes(meaning)
        )

    def _has_tame_metaclass(
        self, home: Module | None, cls: ast.ClassDef, harmless: frozenset[str]
    ) -> bool:
        """Return whether a class has no metaclass but one with harmless methods."""
        for keyword in cls.keywords:
            if keyword.arg == "metaclass":
                named = self._names.spelt(home, keyword.value) if home else LOCAL
                metaclasses = list(self.classes(named))
                if not harmless or len(metaclasses) != 1:
                    return False
                if not self._is_tame(*metaclasses[0], harmless):
                    return False
        return True

    def _is_tame(
        self, home: Module | None, metaclass: ast.stmt, harmless: frozenset[str]
    ) -> bool:
        """Return whether all that a metaclass adds to one of a library is harmless."""
        if home is None or not isinstance(metaclass, ast.ClassDef):
            return False
        bases = [self._names.spelt(home, base).text for base in metaclass.bases]
        added = [part for part in metaclass.body if not is_text(part)]
        return set(bases) <= _METACLASSES and all(
            isinstance(part, ast.FunctionDef)
            and not part.decorator_list
            and part.name in harmless
            for part in added
        )

    def is_plain_class(self, meaning: Meaning) -> bool:
        """Return whether no code of the project runs by itself with instances.

        As it would in `__init__`, in a property, where an operator is defined, or in
        what makes the default of a field.
        """
        definitions = list(self.classes(meaning))
        has_methods = any(
            any(own_methods(cls))
            for _, cls in definitions
            if isinstance(cls, ast.ClassDef)
        )
        return bool(definitions) and all(
            isinstance(cls, ast.ClassDef)
            and not any(is_special(m) or m.decorator_list for m in own_methods(cls))
            and not any(makes_code(s) for s in cls.body)
            and not (home and self._is_handed_code(home, cls))
            and not (has_methods and home and self._has_calling_base(home, cls))
            for home, cls in definitions
        )

    def _is_handed_code(self, home: Module, cls: ast.ClassDef) -> bool:
        """Return whether an attribute of a class is made of a function of the project.

        As by `functools.cached_property(f)`, under whatever name.
        """
        methods = {method.name for method in own_methods(cls)}
        calls = (
            node
            for statement in cls.body
            if not isinstance(statement, FUNCTIONS)
            for node in ast.walk(statement)
            if isinstance(node, ast.Call)
        )
        named = (n for c in calls for a in arguments(c) for n in dotted_names(a))
        return any(
            bool(methods & set(names_in(name)))
            or self.is_code(self._names.spelt(home, name))
            for name in named
        )

    def _has_calling_base(self, home: Module, cls: ast.ClassDef) -> bool:
        """Return whether a base may call methods that it names itself, when it is made.

        As `logging.Handler` does, and pydantic one.
        """
        bases = (b.value if isinstance(b, ast.Subscript) else b for b in cls.bases)
        meanings = [self._names.spelt(home, base) for base in bases]
        return any(
            not base.definition
            and base.text.partition(".")[0] not in _QUIET_BASES
            and not base.text.startswith("?")
            for base in meanings
        ) or any(method.name in _CALLED for method in own_methods(cls))

    def holds_values(
        self, home: Module, call: ast.Call, meaning: Meaning, means: Means | None = None
    ) -> bool:
        """Return whether a call makes an object that computes with its values alone.

        Args:
            home: the module of the call.
            call: of a class of the project.
            meaning: of the called object.
            means: the meaning of a name where the call stands.
        """
        classes = list(self.classes(meaning))
        means = means or partial(self._names.spelt, home)
        fields = {
            part.target.id
            for _, cls in classes
            if isinstance(cls, ast.ClassDef)
            for part in cls.body
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
        }
        properties = {
            method.name
            for _, cls in classes
            if isinstance(cls, ast.ClassDef)
            for method in own_methods(cls)
            if method.decorator_list
        }
        methods = {
            method.name
            for _, cls in classes
            if isinstance(cls, ast.ClassDef)
            for method in own_methods(cls)
            if not method.decorator_list
        }
        return (
            meaning.text == meaning.definition
            and bool(classes)
            and not fields & properties
            and all(is_value(part, means, READING) for part in arguments(call))
            and all(
                home is not None
                and isinstance(cls, ast.ClassDef)
                and keeps_values(self._names, home, cls, methods, READING)
                for home, cls in classes
            )
        )
