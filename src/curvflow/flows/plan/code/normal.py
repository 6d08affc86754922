"""The normal form of a definition: its meaning as text, whatever it looks like.

Left out are comments, layout, docstrings, annotations and positions. Local names are
numbered, unless the code requests them by `locals`, `vars`, `eval` or `exec`;
parameters keep their names, for callers use them. A reference to anything global or
imported becomes its full name: that of a definition of the project, of a module, or of
something outside. Nothing depends on the version of Python.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from curvflow.flows.plan.code.modules import (
    FUNCTIONS,
    Import,
    Module,
    Part,
    Scopes,
    imports,
)
from curvflow.flows.plan.code.sources import ALL, OWN, Sources
from curvflow.flows.plan.code.syntax import imported_in


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of a name or a dotted name.

    Attributes:
        text: full name, the same however it was imported.
        definition: `module:name` if the project defines it.
        module: the module, if it is one of the project.
        within: the module of the project that it is in, but no text says where.
    """

    text: str
    definition: str | None = None
    module: Module | None = None
    within: str = ""


def dotted(node: ast.expr) -> tuple[list[str], ast.expr]:
    """Take an expression `root.a.b` apart into [a, b] and its root."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return names[::-1], node


class Names:
    """The meaning of names in the modules of one project."""

    def __init__(self, sources: Sources, tops: frozenset[str]) -> None:
        self._sources, self.tops = sources, tops
        # With the modules that each was looked up in.
        self._memo: dict[tuple[str, str], tuple[Meaning | None, frozenset[str]]] = {}
        self._looked_up: list[set[str]] = [set()]
        self._answers: dict[str, tuple[str, frozenset[str]]] = {}
        self._versions: dict[str, tuple[str, str] | None] = {}

    def answer(self, name: str, question: Callable[[], str]) -> str:
        """Return the answer to a question about a module, asked once."""
        if name not in self._answers:
            with self.looking_up() as modules:
                text = question()
            self._answers[name] = text, frozenset(modules)
        text, seen = self._answers[name]
        self._looked_up[-1] |= seen
        return text

    def module(self, name: str) -> Module | None:
        """Return a module of the project, or None."""
        self._looked_up[-1].add(name)
        return self._sources.module(name, self.tops)

    def version(self, name: str) -> tuple[str, str] | None:
        """Return package and digest of a module of the project, or None."""
        if name.endswith(ALL):
            return "", self._sources.digest(name)
        self._looked_up[-1].add(name)
        if name not in self._versions:
            module = self.module(name)
            digest = "" if module is None else self._sources.digest(name)
            version = None if module is None else (module.package, digest)
            if name.partition(".")[0] in self.tops:
                return version  # another of its name may be imported at any time
            self._versions[name] = version
        return self._versions[name]

    def inner(self, name: str) -> list[str]:
        """Return the modules of a package of the project."""
        self.module(f"{name}{ALL}")
        return self._sources.inner(name) if self.module(name) else []

    def has_inner(self, name: str, inner: str) -> bool:
        """Return whether a module of the project is a package with such a module."""
        module = self.module(name)
        return (
            module is not None
            and module.package == name
            and self.module(f"{name}.{inner}") is not None
        )

    @contextmanager
    def looking_up(self) -> Iterator[set[str]]:
        """Collect the names of modules that are looked up until the block ends."""
        names: set[str] = set()
        self._looked_up.append(names)
        try:
            yield names
        finally:
            self._looked_up.pop()
            self._looked_up[-1] |= names

    def of(self, module: Module, name: str, attributes: Sequence[str]) -> Meaning:
        """Return the meaning of a global name of a module, or of an attribute of it.

        That of an unknown name, such as a builtin, is `?` and itself.
        """
        meaning = self._named(module, name) or Meaning(f"?{name}")
        return self._attributes(meaning, attributes)

    def imported(self, target: Import, attributes: Sequence[str]) -> Meaning:
        """Return the meaning of an imported name, as `of` does."""
        return self._attributes(self._import(target), attributes)

    def spelt(self, module: Module, node: ast.expr) -> Meaning:
        """Return the meaning of a dotted name, or of a call of one, in a module."""
        attributes, root = dotted(node.func if isinstance(node, ast.Call) else node)
        if isinstance(root, ast.Name):
            return self.of(module, root.id, attributes)
        return Meaning("?")

    def _attributes(self, meaning: Meaning, attributes: Sequence[str]) -> Meaning:
        for name in attributes:
            if meaning.module is not None:
                meaning = self._member(meaning.module, name)
            else:
                text = f"{meaning.text}.{name}"
                meaning = Meaning(text, meaning.definition, within=meaning.within)
        return meaning

    def _member(self, module: Module, name: str) -> Meaning:
        if meaning := self._named(module, name):
            return meaning
        inner = self.module(f"{module.name}.{name}")
        text = f"{module.name}.{name}"
        return Meaning(text, module=inner, within="" if inner else module.name)

    def _import(self, target: Import) -> Meaning:
        module = self.module(target.module)
        if module is None:
            parts = [target.module, target.member] if target.member else [target.module]
            return Meaning(".".join(parts))
        if target.member is None:
            return Meaning(module.name, module=module)
        return self._member(module, target.member)

    def _named(self, module: Module, name: str) -> Meaning | None:
        key = module.name, name
        if key not in self._memo:
            # Modules that import each other end here.
            self._memo[key] = None, frozenset()
            with self.looking_up() as modules:
                meaning = self._look_up(module, name)
            self._memo[key] = meaning, frozenset(modules)
        meaning, seen = self._memo[key]
        self._looked_up[-1] |= seen
        return meaning

    def _look_up(self, module: Module, name: str) -> Meaning | None:
        if target := module.aliases.get(name):
            return self._import(target)
        if name in module.parts:
            full = f"{module.name}:{name}"
            return Meaning(full, full)
        for star in module.stars:
            other = self.module(star)
            meaning = self._named(other, name) if other else None
            if meaning is not None:
                return meaning
        lazy = module.lazy.get(name)
        return self._import(lazy) if lazy else None


# Raise one when any form changes: results of others are then not compared.
NORMAL_FORM = 2  # of nodes that this package's code alone computes
PROJECT_FORM = 3  # of nodes with code of a user's

_SKIPPED = {"ctx", "kind", "type_comment", "type_params", "annotation", "returns"}
_ASKS_FOR_NAMES = {"?locals", "?vars", "?eval", "?exec"}
COMPUTES = {
    "curvflow.tasks.registry:computes",
    "curvflow.tasks.registry:computes_each",
}
# They register a function, and do not change its result.
_OFFERS = {*COMPUTES, "curvflow.tasks.stage:stage"}
_WORDS = {"description", "title", "examples"}  # of a pydantic field
# Decorators, bases and functions of these do not look at annotations, `?` being Python
# itself. Parameters of kinds convert before the key is made, which shows the outcome.
BLIND = frozenset(
    {
        *("?", "abc", "collections", "contextlib", "copy", "dask", "dataclasses"),
        *("enum", "functools", "itertools", "jax", "joblib", "logging", "math"),
        *("matplotlib", "numba", "numpy", "operator", "os", "pandas", "pathlib"),
        *("scipy", "sklearn", "torch", "tqdm", "types", "typing", "typing_extensions"),
        *("warnings", "xarray", OWN),
    }
)
ANNOTATIONS = "<annotations>"  # of a definition that is handed to what reads them
WHOLE = "<whole>"  # all of a module, where its names are not followed one by one
VALUE = "<value>"  # all of a module that is used as a value, and of its modules
COMPUTED = "<computed>"  # all that a computed name may load in a module
LOADING = frozenset({"importlib.import_module", "importlib.__import__", "?__import__"})


# They find a module, or something in one, by a text.
_FINDING = frozenset({"pkgutil.resolve_name", "pydoc.locate", "runpy.run_module"})


def loaded_module(call: ast.Call) -> str:
    """Return the module that a call loads by a plain text; empty if it is computed."""
    name = _plain_text(call.args[0]) if call.args else ""
    words = {keyword.arg for keyword in call.keywords}
    # With `package` or `level` a name may be relative.
    is_absolute = len(call.args) <= 4 and words <= {"globals", "locals", "fromlist"}
    return name if is_absolute and not name.startswith(".") else ""


def _plain_text(node: ast.expr) -> str:
    """Return a text that is written out, also in pieces; empty if it is not."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _plain_text(node.left), _plain_text(node.right)
        return left + right if left and right else ""
    if isinstance(node, ast.JoinedStr):
        pieces = list(map(_plain_text, node.values))
        return "".join(pieces) if all(pieces) else ""
    return ""


def loaded_package(call: ast.Call, dunders: Mapping[str, str]) -> str:
    """Return the package whose modules alone a call loads by a computed name, or "".

    It stands before the last dot of what the name begins with: `"lab.rules." + name`,
    f"lab.rules.{name}", `"lab.rules.%s" % name`, f"{__name__}.{name}"; or is the one
    that a relative name is of: `("." + name, "lab.rules")`. `dunders` are names that
    Python has given the module.
    """
    if not call.args or any(isinstance(arg, ast.Starred) for arg in call.args):
        return ""
    text, others = _beginning(call.args[0], dunders)[0], call.args[1:]
    words = [keyword.arg for keyword in call.keywords]
    if (len(others), words) in ((1, []), (0, ["package"])):
        of = others[0] if others else call.keywords[0].value
        package, is_known = _beginning(of, dunders)
        is_sibling = text.startswith(".") and not text.startswith("..") and package
        return f"{package}{text}".rpartition(".")[0] if is_known and is_sibling else ""
    return "" if others or words or text.startswith(".") else text.rpartition(".")[0]


def _beginning(node: ast.expr, dunders: Mapping[str, str]) -> tuple[str, bool]:
    """Return what a text begins with for sure, and whether that is all of it."""
    match node:
        case ast.Constant(value=str(text)):
            return text, True
        case ast.Name(id=name) if name in dunders:
            return dunders[name], True
        case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
            return _beginning(value, dunders)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _joined([left, right], dunders)
        case ast.JoinedStr(values=values):
            return _joined(values, dunders)
    return _formatted(node), False


def _joined(parts: Sequence[ast.expr], dunders: Mapping[str, str]) -> tuple[str, bool]:
    text = ""
    for part in parts:
        beginning, is_known = _beginning(part, dunders)
        text += beginning
        if not is_known:
            return text, False
    return text, True


def _formatted(node: ast.expr) -> str:
    """Return what stands before the first place of a format."""
    match node:
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod()):
            return text.partition("%")[0]
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")
        ):
            return text.partition("{")[0]
    return ""


@dataclass(frozen=True, slots=True)
class Form:
    """A normal form.

    Attributes:
        text: itself.
        references: the project's definitions that it names, in order.
    """

    text: str
    references: tuple[str, ...]


def normal_form(
    names: Names, module: Module, parts: Sequence[Part], within: ast.ClassDef | None
) -> Form:
    """Return the normal form of a definition; of a class, without its methods."""
    form, asks = _written(names, module, parts, within, renames=True)
    if asks:
        form, _ = _written(names, module, parts, within, renames=False)
    return form


def _written(
    names: Names,
    module: Module,
    parts: Sequence[Part],
    within: ast.ClassDef | None,
    *,
    renames: bool,
) -> tuple[Form, bool]:
    writer = _Writer(names, module, renames=renames)
    for part in parts:
        writer.write(list(part.guards))
        if within is None:
            writer.write(part.statement)
        else:
            with writer.scopes.entered(within.body, is_class=True):
                writer.write(part.statement)
    form = Form("".join(writer.out), tuple(writer.references))
    return form, writer.asks_for_names


class _Writer:
    def __init__(self, names: Names, module: Module, *, renames: bool) -> None:
        self.out: list[str] = []
        self.references: dict[str, None] = {}
        self.asks_for_names = False
        self.scopes = Scopes(module.package, renames=renames)
        self._names, self._module = names, module
        self._called: ast.expr | None = None  # what loads a module, where it is called

    def write(self, value: object) -> None:
        if isinstance(value, ast.AST):
            special = _SPECIAL.get(type(value))
            if special:
                special(self, value)
            else:
                self._plain(value)
        elif isinstance(value, list):
            self._list(value)
        else:
            # Not repr: which characters it escapes depends on the version of Python.
            self.out.append(f"{type(value).__name__}:{value!a}")

    def _list(self, values: Sequence[object]) -> None:
        self.out.append("[")
        for value in values:
            before = len(self.out)
            self.write(value)
            if len(self.out) > before:
                self.out.append(",")
        self.out.append("]")

    def _plain(self, node: ast.AST, *, but: tuple[str, ...] = ()) -> None:
        self._fields(
            type(node).__name__,
            [(f, getattr(node, f, None)) for f in node._fields if f not in but],
        )

    def _fields(self, title: str, fields: Sequence[tuple[str, object]]) -> None:
        self.out.append(f"{title}(")
        for field, value in fields:
            if field not in _SKIPPED and value is not None and value != []:
                self.out.append(f" {field}=")
                self.write(value)
        self.out.append(")")

    # names

    def _meaning(self, name: str, attributes: Sequence[str]) -> Meaning | None:
        meaning = self.scopes.find(name)
        if isinstance(meaning, str):
            return None
        if isinstance(meaning, Import):
            return self._names.imported(meaning, attributes)
        return self._names.of(self._module, name, attributes)

    def _refer(self, meaning: Meaning) -> None:
        self.out.append(f"<{meaning.text}>")
        self.asks_for_names |= meaning.text in _ASKS_FOR_NAMES
        if meaning.definition:
            self.references[meaning.definition] = None
            home, _, name = meaning.definition.partition(":")
            # Once a module of this name is imported, a package's name means it.
            if home.partition(".")[0] != OWN and self._names.has_inner(home, name):
                self.references[f"{home}.{name}:{VALUE}"] = None

    def _take(self, meaning: Meaning, node: ast.expr) -> None:
        """Refer to a value; of a module that is one, any name may be meant.

        What loads modules is one, too, where it is handed on and not called.
        """
        self._refer(meaning)
        whole = meaning.within if meaning.module is None else meaning.module.name
        if whole:
            self.references[f"{whole}:{VALUE}"] = None
        if meaning.text in LOADING and node is not self._called:
            self.references[f"{self._module.name}:{COMPUTED}"] = None

    def _local(self, name: str | None) -> None:
        if name is not None:
            meaning = self.scopes.find(name)
            self.out.append(f" {meaning if isinstance(meaning, str) else name}")

    def name(self, node: ast.Name) -> None:
        meaning = self._meaning(node.id, ())
        if meaning is None:
            self._local(node.id)
        else:
            self._take(meaning, node)

    def attribute(self, node: ast.Attribute) -> None:
        chain, root = dotted(node)
        meaning = self._meaning(root.id, chain) if isinstance(root, ast.Name) else None
        if meaning is None:
            self._plain(node)
        else:
            self._take(meaning, node)

    def captured(self, node: ast.MatchAs | ast.MatchStar | ast.ExceptHandler) -> None:
        self.out.append(type(node).__name__)
        self._local(node.name)
        self._plain(node, but=("name",))

    def mapping(self, node: ast.MatchMapping) -> None:
        self._plain(node, but=("rest",))
        self._local(node.rest)

    # functions, classes, comprehensions

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        offered = [d for d in node.decorator_list if self._means(d) not in _OFFERS]
        if any(self._means(d) == "typing.overload" for d in offered):
            return
        self.out.append(type(node).__name__)
        if self.scopes:
            self._local(node.name)
        self._list(offered)
        self._callable(node.args, node.body)

    def lambda_(self, node: ast.Lambda) -> None:
        self.out.append("Lambda")
        self._callable(node.args, [node.body])

    def _callable(self, args: ast.arguments, body: Sequence[ast.AST]) -> None:
        # Defaults are evaluated outside.
        self._list(args.defaults)
        self._list(args.kw_defaults)
        lists = [args.posonlyargs, args.args, args.kwonlyargs]
        lists += [[a] if a else [] for a in (args.vararg, args.kwarg)]
        parameters = [a.arg for arguments in lists for a in arguments]
        self.out.append(
            "|".join(",".join(a.arg for a in arguments) for arguments in lists)
        )
        with self.scopes.entered(body, parameters):
            self._list(body)

    def class_(self, node: ast.ClassDef) -> None:
        self.out.append("ClassDef")
        outermost = not self.scopes
        if not outermost:
            self._local(node.name)
        self._list(node.decorator_list)
        self._list(node.bases)
        self._list(node.keywords)
        statements = [
            s for s in node.body if not (outermost and isinstance(s, FUNCTIONS))
        ]
        with self.scopes.entered(node.body, is_class=True):
            self._list(statements)

    def comprehension(self, node: Any) -> None:
        self.out.append(type(node).__name__)
        first, *others = node.generators
        self.write(first.iter)
        targets = [generator.target for generator in node.generators]
        with self.scopes.entered(targets):
            self._fields(
                "for",
                [("target", first.target), ("ifs", first.ifs), ("others", others)],
            )
            self.out.append(f" {first.is_async}")
            self._plain(node, but=("generators",))

    # statements and expressions of more than one look

    def annotated(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._fields("Assign", [("targets", [node.target]), ("value", node.value)])
        elif self.scopes.in_class:
            self._fields("Field", [("target", node.target)])

    def expression(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self._plain(node)

    def nothing(self, node: ast.AST) -> None:
        """Leave out `pass`, `global` and `nonlocal`."""

    def choice(self, node: ast.If) -> None:
        if self._module.is_for_checkers(node.test):
            for statement in node.orelse:
                self.write(statement)
        else:
            self._plain(node)

    def imported(self, node: ast.Import | ast.ImportFrom) -> None:
        for name, target in imports(node, self._module.package):
            if not isinstance(self.scopes.find(name), Import):
                self.out.append("import")
                self._local(name)
                self._refer(self._names.imported(target, ()))

    def call(self, node: ast.Call) -> None:
        called = self._means(node.func)
        if called in LOADING:
            self._called = node.func
        if called in _FINDING and node.args:
            self._find(_plain_text(node.args[0]).partition(":")[0])
        if (
            called
            and not called.startswith("?")
            and called.partition(".")[0] not in BLIND
        ):
            self._hand(node)
        if called == "typing.cast" and len(node.args) == 2:
            self.write(node.args[1])
        elif called == "pydantic.Field":
            keywords = [k for k in node.keywords if k.arg not in _WORDS]
            parts = [("func", node.func), ("args", node.args), ("keywords", keywords)]
            self._fields("Call", parts)
        else:
            self._plain(node)
        if called in LOADING:
            self._load(node)

    def _load(self, node: ast.Call) -> None:
        """Refer to the modules that a call loads."""
        module = self._module
        given = {"__name__": module.name, "__package__": module.package}
        bound = {*module.parts, *module.aliases}
        dunders = {
            n: t for n, t in given.items() if not (n in bound or self.scopes.find(n))
        }
        name = loaded_module(node) or loaded_package(node, dunders)
        loaded = self._names.imported(Import(name), ()).module if name else None
        if loaded is not None:
            self.references[f"{loaded.name}:{VALUE}"] = None
        elif not name:
            self.references[f"{self._module.name}:{COMPUTED}"] = None

    def _hand(self, call: ast.Call) -> None:
        """Refer to annotations of objects given to a library that may read them."""
        for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
            inner = argument.slice if isinstance(argument, ast.Subscript) else argument
            for given in inner.elts if isinstance(inner, ast.Tuple) else [inner]:
                chain, root = dotted(given)
                if isinstance(root, ast.Name):
                    meaning = self._meaning(root.id, chain)
                    if meaning and meaning.definition:
                        self.references[f"{meaning.definition}.{ANNOTATIONS}"] = None

    def _find(self, name: str) -> None:
        """Refer to the module that a dotted name begins with."""
        while name and (module := self._names.module(name)) is None:
            name = name.rpartition(".")[0]
        if name and module is not None:
            self.references[f"{module.name}:{VALUE}"] = None

    def text(self, node: ast.JoinedStr) -> None:
        merged: list[ast.expr] = []
        for value in node.values:
            last = merged[-1] if merged else None
            if isinstance(value, ast.Constant) and isinstance(last, ast.Constant):
                merged[-1] = ast.Constant(str(last.value) + str(value.value))
            elif not isinstance(value, ast.Constant) or value.value:
                # Python 3.12 ends some formats with an empty text.
                merged.append(value)
        self._fields("JoinedStr", [("values", merged)])

    def _means(self, node: ast.expr) -> str:
        chain, root = dotted(node.func if isinstance(node, ast.Call) else node)
        meaning = self._meaning(root.id, chain) if isinstance(root, ast.Name) else None
        return meaning.text if meaning else ""


_SPECIAL: dict[type[ast.AST], Callable[[_Writer, Any], None]] = {
    ast.Name: _Writer.name,
    ast.Attribute: _Writer.attribute,
    ast.ExceptHandler: _Writer.captured,
    ast.MatchAs: _Writer.captured,
    ast.MatchStar: _Writer.captured,
    ast.MatchMapping: _Writer.mapping,
    ast.FunctionDef: _Writer.function,
    ast.AsyncFunctionDef: _Writer.function,
    ast.Lambda: _Writer.lambda_,
    ast.ClassDef: _Writer.class_,
    ast.ListComp: _Writer.comprehension,
    ast.SetComp: _Writer.comprehension,
    ast.DictComp: _Writer.comprehension,
    ast.GeneratorExp: _Writer.comprehension,
    ast.AnnAssign: _Writer.annotated,
    ast.Expr: _Writer.expression,
    ast.Pass: _Writer.nothing,
    ast.Global: _Writer.nothing,
    ast.Nonlocal: _Writer.nothing,
    ast.If: _Writer.choice,
    ast.Import: _Writer.imported,
    ast.ImportFrom: _Writer.imported,
    ast.Call: _Writer.call,
    ast.JoinedStr: _Writer.text,
}


def spelt_in(
    names: Names, module: Module, statement: ast.stmt
) -> Iterator[tuple[str, ast.Name | ast.Attribute]]:
    """Yield the dotted names in a statement, each with the text that it stands for.

    Imports in functions count wherever the statement uses their names.
    """
    inner = imported_in(statement)
    for node in ast.walk(statement):
        if isinstance(node, ast.Name | ast.Attribute):
            attributes, root = dotted(node)
            if isinstance(root, ast.Name) and root.id in inner:
                yield ".".join([inner[root.id], *attributes]), node
            else:
                yield names.spelt(module, node).text, node
