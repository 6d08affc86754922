"""Fingerprints of the code that computes a node, from source text.

Followed are functions, classes with their methods and bases, constants, closures,
defaults, decorators, imports wherever they stand and re-exports, within the project;
and what parameters name: see `Kind.loads` and factories. Annotations are where a
library or a decorator may read them: see `annotations`.

Of a user's module with a doubt, see `doubts`, all counts at once: where a name of it is
reached, and where another module that is reached imports it. So does one that is used
as a value, and one of whose functions requests names when it is called. Where Python
is to list classes, frames or loaded modules, all imported modules count.

Not followed is what no text shows: `getattr` of an object by a computed name,
`import_module` of a computed name outside of `Kind.loads`, methods of objects whose
class is never named. Such code counts only if something else reaches it. A function
without source, as of `exec`, has no fingerprint; that of a notebook has: see `cells`.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

from curvflow.flows.graph.graph import Node
from curvflow.flows.plan.code.annotations import all_of, that_run
from curvflow.flows.plan.code.doubts import doubt_of, hiding_of
from curvflow.flows.plan.code.modules import (
    ON_IMPORT,
    Import,
    Module,
    Part,
    origin,
)
from curvflow.flows.plan.code.normal import (
    ANNOTATIONS,
    COMPUTED,
    COMPUTES,
    NORMAL_FORM,
    PROJECT_FORM,
    VALUE,
    WHOLE,
    Names,
    normal_form,
    spelt_in,
)
from curvflow.flows.plan.code.sources import (
    LIBRARIES,
    OWN,
    Loaded,
    Sources,
    carried,
    is_of_text,
    is_typed,
    loaded,
    signature,
)
from curvflow.flows.plan.code.syntax import depends_on_order, own_methods
from curvflow.flows.reads.ledgers import Loads
from curvflow.schemas.kind import Kind
from curvflow.schemas.long_lived import paused_gc
from curvflow.schemas.nodes import Trajectory, Weights
from curvflow.schemas.params import Params
from curvflow.schemas.records.receipts import CodeRecord, Receipt
from curvflow.tasks.registry import home_of


@dataclass(frozen=True, slots=True)
class Definition:
    """A function, class, method or constant of the project.

    Attributes:
        digest: of its normal form, 16 hexadecimal digits.
        references: the definitions that it reaches at once.
    """

    digest: str
    references: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Known:
    """A definition read before in this process.

    Attributes:
        definition: itself; None if there is none of its name.
        modules: versions of all modules that names were looked up in; None of one that
            is not the project's.
    """

    definition: Definition | None
    modules: Mapping[str, tuple[str, str] | None]


# By packages of a user's that are the project's too, and name.
_known: dict[tuple[frozenset[str], str], _Known] = {}


class Definitions:
    """The definitions of one project by name: `module:name`, `module:Class.method`."""

    def __init__(self, names: Names, library: Definitions | None = None) -> None:
        self._names, self._library = names, library
        self._memo: dict[str, Definition | None] = {}
        self._doubts: dict[str, str] = {}
        self._asks: dict[str, bool] = {}

    def of(self, name: str) -> Definition | None:
        """Return the definition of this name, if the project has it."""
        if self._library and name.startswith(f"{OWN}."):
            return self._library.of(name)
        if name not in self._memo:
            self._memo[name] = self._cached(name)
        return self._memo[name]

    def _cached(self, name: str) -> Definition | None:
        """Return a definition read before if its modules are as they were, or read it.

        A process that runs several studies, as a notebook or a worker of deployments,
        would read most of them each time.
        """
        key, names = (self._names.tops, name), self._names
        known = _known.get(key)
        if known and all(names.version(m) == v for m, v in known.modules.items()):
            return known.definition
        with names.looking_up() as modules:
            definition = self._read(name)
        _known[key] = _Known(definition, {m: names.version(m) for m in modules})
        return definition

    def digest(self, name: str) -> str:
        """Return the digest of a definition that exists."""
        definition = self.of(name)
        assert definition is not None, name
        return definition.digest

    def whole(self, module_name: str) -> tuple[str, ...]:
        """List all definitions of a module; none if the project has no such module."""
        module = self._names.module(module_name)
        return tuple(f"{module_name}:{name}" for name in module.parts) if module else ()

    def doubt(self, module_name: str) -> str:
        """Return why a module of a user's counts as a whole; empty if it does not."""
        module = self._names.module(module_name)
        if module is None or not _is_theirs(module_name) or is_typed(module_name):
            return ""
        if module_name not in self._doubts:
            self._doubts[module_name] = doubt_of(self._names, module)
        return self._doubts[module_name]

    def reason(self, module_name: str) -> str:
        """Return why a module counts as a whole; empty if it is used as a value."""
        module = self._names.module(module_name)
        doubt = self.doubt(module_name)
        if doubt or module is None or is_typed(module_name):
            return doubt
        return hiding_of(self._names, module, module.body)

    def reached(
        self,
        starts: Sequence[str],
        beside: Sequence[str],
        loads: Sequence[str] | None = None,
    ) -> dict[str, tuple[str, ...]]:
        """Return each definition reached from some, with a shortest way to it.

        Names with `IMPORTED` lead to what imports run, and are no definitions. With
        `loads`, modules that a run has loaded by computed names, these names lead to
        these modules, and to no other.
        """
        if loads is not None:
            inner = [f"{name}:{what}" for name in loads for what in (VALUE, IMPORTED)]
            beside = (*beside, *inner)
        paths: dict[str, tuple[str, ...]] = {name: (name,) for name in starts}
        paths |= {name: (*starts[:1], name) for name in beside if name not in paths}
        pending, asking = deque(paths), ""
        while pending:
            name = pending.popleft()
            is_known = loads is not None and name.endswith(f":{COMPUTED}")
            definition = None if is_known else self.of(name)
            if definition is None:
                del paths[name]
                continue
            references = definition.references
            if not asking and self.asks_for_all(name):
                asking, references = name, (*references, *_all_of(paths))
            elif asking and name.endswith(f":{IMPORTED}"):
                references = (*references, *_all_of([name]))
            for reference in references:
                if reference not in paths:
                    paths[reference] = (*paths[name], reference)
                    pending.append(reference)
        return {n: path for n, path in paths.items() if not n.endswith(IMPORTED)}

    def asks_for_all(self, name: str) -> bool:
        """Return whether a name stands for classes or objects, wherever they are.

        That of a module as a whole that asks Python for them, and a computed name.
        """
        if not name.endswith(f":{WHOLE}"):
            return name.endswith(f":{COMPUTED}")
        module = self._names.module(name.partition(":")[0])
        if name not in self._asks:
            self._asks[name] = module is not None and any(
                getattr(node, "attr", getattr(node, "id", None)) in _ASKING
                or text in _ASKING_OF
                for statement in module.body
                for text, node in spelt_in(self._names, module, statement)
            )
        return self._asks[name]

    def _read(self, name: str) -> Definition | None:
        module_name, _, full = name.partition(":")
        top, _, method = full.partition(".")
        module = self._names.module(module_name)
        if module is not None and full in (WHOLE, VALUE, COMPUTED, IMPORTED):
            return self._of_module(module, full) if _is_theirs(module_name) else None
        parts = module.parts.get(top, []) if module else []
        if module is None or not parts:
            return None
        if method == ANNOTATIONS:
            return self._annotations(module, parts)
        if method:
            return self._method(module, parts, method)
        form = normal_form(self._names, module, parts, None)
        inner = dict.fromkeys(methods(parts))
        others = [f"{name}.{m}" for m in inner]
        if top != ON_IMPORT and ON_IMPORT in module.parts:
            others.append(f"{module_name}:{ON_IMPORT}")
        if _is_theirs(module_name):
            others.append(f"{module_name}:{IMPORTED}")
            if that_run(self._names, module, parts):
                others.append(f"{name}.{ANNOTATIONS}")
            bare = [s for part in parts for s in _without_methods(part.statement)]
            others += self._hidden_whole(module, bare)
        return _definition(form.text, (*form.references, *others))

    def _of_module(self, module: Module, what: str) -> Definition:
        """Return a module as a whole, as a value, or what importing it runs."""
        imported = [
            n for base, name in _imported(module) for n in (base, f"{base}.{name}")
        ]
        above = chain.from_iterable(map(_above, [module.name, *imported]))
        theirs = [
            name
            for name in dict.fromkeys(above)
            if name != module.name and _is_theirs(name) and self._names.module(name)
        ]
        if what == IMPORTED:
            return _definition("", self._run_on_import(module, theirs))
        if what == WHOLE:
            return self._whole(module)
        # What is loaded by a computed name is told by a folder at best.
        packages = [module.name] if what == VALUE else [module.package, *theirs]
        inner = [n for p in packages if p for n in self._names.inner(p)]
        if what == COMPUTED:
            inner += [name for name in theirs if name not in inner]
        whole = [f"{module.name}:{WHOLE}"] if what == VALUE else []
        return _definition(str(inner), [*whole, *(f"{n}:{VALUE}" for n in inner)])

    def _run_on_import(self, module: Module, theirs: Sequence[str]) -> list[str]:
        run = [f"{name}:{IMPORTED}" for name in theirs]
        # Whether a module fails depends on all that it runs.
        tried = [s.body for s in module.body if isinstance(s, ast.Try) and s.handlers]
        for base, name in chain.from_iterable(_imported(module, b) for b in tried):
            run += [f"{n}:{WHOLE}" for n in (base, f"{base}.{name}") if n in theirs]
        if self.doubt(module.name):
            run.append(f"{module.name}:{WHOLE}")
        elif ON_IMPORT in module.parts:
            run.append(f"{module.name}:{ON_IMPORT}")
        return run

    def _whole(self, module: Module) -> Definition:
        form = normal_form(self._names, module, list(map(Part, module.body)), None)
        stars = [
            (place, origin(node, module.package))
            for place, node in enumerate(module.body)
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
        ]
        inner = [*self.whole(module.name), *form.references, *self._taken(module)]
        classes = [c for s in module.body for c in ast.walk(s)]
        order = [
            [getattr(member, "name", ast.dump(member)) for member in cls.body]
            for cls in classes
            if isinstance(cls, ast.ClassDef) and depends_on_order(cls)
        ]
        return _definition(f"{form.text}{stars}{order or ''}", inner)

    def _taken(self, module: Module) -> Iterator[str]:
        """Yield what a module that counts as a whole may use of what it imports.

        Of a module all, and of one from which it imports names these.
        """
        for base, name in _imported(module):
            if not _is_theirs(base) or self._names.module(base) is None:
                continue
            meaning = self._names.imported(Import(base, name or None), ())
            if name == "*" or not (meaning.module or meaning.definition):
                yield f"{base}:{WHOLE}"
            elif meaning.module is not None:
                yield f"{meaning.module.name}:{WHOLE}"
            else:
                yield str(meaning.definition)

    def _annotations(self, module: Module, parts: Sequence[Part]) -> Definition | None:
        """Return the annotations of a definition, and of those that they name."""
        if not _is_theirs(module.name):
            return None
        form = normal_form(
            self._names, module, all_of(self._names, module, parts), None
        )
        inner = (f"{name}.{ANNOTATIONS}" for name in form.references)
        return _definition(form.text, (*form.references, *inner))

    def _method(
        self, module: Module, parts: Sequence[Part], method: str
    ) -> Definition | None:
        for part in parts:
            cls = part.statement
            if not isinstance(cls, ast.ClassDef) or method not in methods([part]):
                continue
            bodies = [Part(f) for f in own_methods(cls) if f.name == method]
            form = normal_form(self._names, module, bodies, cls)
            whole = self._hidden_whole(module, [part.statement for part in bodies])
            return _definition(form.text, (*form.references, *whole))
        return None

    def _hidden_whole(
        self, module: Module, statements: Sequence[ast.stmt]
    ) -> list[str]:
        """Return the module as a whole if statements may mean any name of it."""
        if not _is_theirs(module.name) or is_typed(module.name):
            return []
        hides = hiding_of(self._names, module, statements)
        return [f"{module.name}:{WHOLE}"] if hides else []


IMPORTED = "<imported>"
# They lead to other modules' names than those of the module where they stand.
_ASKING = frozenset(
    {
        *("__subclasses__", "get_objects", "get_referrers", "_getframe", "f_globals"),
        *("currentframe", "__globals__", "getouterframes", "getmodule"),
    }
)
_ASKING_OF = frozenset({"sys.modules", "inspect.stack", "inspect.trace"})


def _all_of(names: Iterable[str]) -> list[str]:
    """List the modules of a user's that were imported, each as a whole."""
    ends = f":{IMPORTED}"
    stems = [name.removesuffix(ends) for name in names if name.endswith(ends)]
    return [f"{name}:{WHOLE}" for name in stems if _is_theirs(name)]


def _without_methods(statement: ast.stmt) -> list[ast.stmt]:
    """Return the parts of a class that are no methods; of anything else itself."""
    if not isinstance(statement, ast.ClassDef):
        return [statement]
    inner = {*own_methods(statement)}
    return [part for part in statement.body if part not in inner]


def _is_theirs(module_name: str) -> bool:
    """Return whether a module is not of this package."""
    return module_name.partition(".")[0] != OWN


def _imported(
    module: Module, part: Sequence[ast.stmt] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the modules that a module's text imports anywhere, and a name in each.

    The name is empty where the module itself is imported. Imports for type checkers
    alone are left out.
    """
    pending: list[ast.AST] = [*(module.body if part is None else part)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = origin(node, module.package)
            yield from ((base, alias.name) for alias in node.names)
        elif isinstance(node, ast.If) and module.is_for_checkers(node.test):
            pending += node.orelse
        else:
            pending += ast.iter_child_nodes(node)


def _above(name: str) -> Iterator[str]:
    """Yield a module and the packages that are imported before it."""
    parts = name.split(".")
    yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def methods(
    parts: Sequence[Part],
) -> Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the methods of a class by name; nothing if it is no class."""
    return {
        function.name: function
        for part in parts
        if isinstance(part.statement, ast.ClassDef)
        for function in own_methods(part.statement)
    }


def _definition(text: str, references: Sequence[str]) -> Definition:
    return Definition(sha256(text.encode()).hexdigest()[:16], tuple(references))


# They act before the key is made, and it shows what they change.
_VALIDATORS = {"pydantic.field_validator", "pydantic.model_validator"}


class Entries:
    """The definitions that run first for a node, in one project."""

    def __init__(self, names: Names, definitions: Definitions) -> None:
        self._names, self._definitions = names, definitions

    def functions(self, kind: Kind) -> tuple[str, ...]:
        """Return the functions that compute a kind; none without a source file."""
        if kind.home:
            return (kind.home,) if self._definitions.of(kind.home) else ()
        return tuple(self._computing(kind.name, home_of(kind.name)))

    def beside(self, loaded: Loaded) -> tuple[str, ...] | None:
        """Return definitions that run for a node, not named in its kind's function.

        None if a function has no source file.
        """
        whole = [n for m in sorted(loaded.modules) for n in self._definitions.whole(m)]
        functions = sorted(
            f for f in loaded.functions if f.partition(".")[0] not in LIBRARIES
        )
        if not all(self._definitions.of(function) for function in functions):
            return None
        inner = [name for m in sorted(loaded.models) for name in self._methods(m)]
        return (*whole, *functions, *dict.fromkeys(inner))

    def _computing(self, kind: str, home: str) -> Iterator[str]:
        module = self._names.module(home)
        for name, parts in module.parts.items() if module else ():
            for part in parts:
                for decorator in getattr(part.statement, "decorator_list", ()):
                    says = isinstance(decorator, ast.Call) and decorator.args[:1]
                    if (
                        says
                        and getattr(says[0], "value", None) == kind
                        and module is not None
                        and self._names.spelt(module, decorator).text in COMPUTES
                    ):
                        yield f"{home}:{name}"

    def _methods(self, model: str) -> Iterator[str]:
        home, _, name = model.partition(":")
        module = self._names.module(home)
        for part in module.parts.get(name, ()) if module else ():
            if module is None or not isinstance(part.statement, ast.ClassDef):
                continue
            for base in part.statement.bases:
                if inherited := self._names.spelt(module, base).definition:
                    yield from self._methods(inherited)
            for method, function in methods([part]).items():
                decorators = function.decorator_list
                texts = {self._names.spelt(module, d).text for d in decorators}
                if not texts & _VALIDATORS:
                    yield f"{model}.{method}"


@dataclass(frozen=True)
class Code:
    """The code that computes a node.

    Attributes:
        fingerprint: 64 hexadecimal digits over the number of the normal form and all
            definitions; empty if it is unknown, and is not to be compared.
        definitions: `module:function`, `module:Class`, `module:Class.method` or
            `module:NAME` to 16 digits over its normal form.
        paths: per definition a shortest way to it from the kind's function, by names.
        doubts: per module that counts as a whole, the reason; none if it is a value.
        asks: whether it may find what no name in it says, as in `sys.modules`.
    """

    fingerprint: str = ""
    definitions: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    doubts: Mapping[str, str] = field(default_factory=dict)
    asks: bool = False

    def of_users(self) -> dict[str, str]:
        """Return the definitions in code of a user's, those that have a name."""
        return {
            name: digest
            for name, digest in self.definitions.items()
            if _is_theirs(name.partition(":")[0]) and not name.endswith(">")
        }


def recorded_loads(reads: Mapping[str, Any] | None) -> tuple[str, ...] | None:
    """Return the modules that a receipt says were loaded by computed names.

    None if it does not say so: then any may have been.
    """
    return tuple(reads["loads"]) if reads and "loads" in reads else None


def form_of(definitions: Iterable[str]) -> int:
    """Return the number of the normal form that definitions are written in."""
    theirs = any(_is_theirs(name.partition(":")[0]) for name in definitions)
    return PROJECT_FORM if theirs else NORMAL_FORM


@dataclass(slots=True)
class _Runs:
    """The functions that run for nodes that are alike.

    Attributes:
        all: what their parameters name.
        passed: what of it runs for all that take their weights.
        codes: of the nodes, by the modules that a run has loaded by computed names;
            None of any.
    """

    all: Loaded
    passed: Loaded
    codes: dict[tuple[str, ...] | None, Code] = field(default_factory=dict)


class Fingerprints:
    """The code of the nodes of a study; files are read once, when first reached."""

    def __init__(self, folder: Path, package: Path | None = None) -> None:
        """Read modules of the study's folder and of this package, or a copy of it."""
        self._sources = Sources(folder, package or Path(__file__).parents[3])
        self._library = Definitions(Names(self._sources, frozenset()))
        self._projects: dict[frozenset[str], tuple[Entries, Definitions]] = {}
        # Per node, and for what alike nodes share, so that 100,000 of them cost little;
        # what is looked up by its id is held by the entry.
        self._nodes: dict[Node, _Runs] = {}
        self._shapes: dict[Hashable, _Runs] = {}
        self._of_params: dict[int, tuple[Params, _Runs]] = {}
        self._with: dict[tuple[int, int], tuple[_Runs, _Runs, _Runs]] = {}
        self._modules: dict[int, tuple[str, ...]] = {}

    def of(self, node: Node, loads: Sequence[str] | None = None) -> Code:
        """Return the code that computes a node; alike nodes share one object.

        Args:
            node: of the study.
            loads: the modules that its call has loaded by computed names, if a run has
                recorded them; otherwise these may mean any.
        """
        runs = self._runs(node)
        key = None if loads is None else tuple(loads)
        if key not in runs.codes:
            with paused_gc():  # syntax trees are many objects, and all stay
                runs.codes[key] = self._code(node.kind, runs.all, key)
        return runs.codes[key]

    def of_result(self, node: Node, receipt: Receipt | None) -> Code:
        """Return the code that would compute a node's result, as it was recorded."""
        return self.of(node, recorded_loads(receipt.reads if receipt else None))

    def loads_of(self, node: Node, loads: Loads) -> Loads | None:
        """Return what computed names of a node's code have led to in a process.

        None if its text has no such name; and if a module's file is not, or not any
        more, what was loaded: then the text says nothing, and all that is read counts.
        """
        computed = (n.endswith(f":{COMPUTED}") for n in self.of(node).definitions)
        if not any(computed):
            return None
        modules = {*self.modules(node, loads.whole), *loads.whole, *loads.passed}
        read = self._sources.read()
        as_loaded = all(
            text is not None and is_of_text(read.get(name, ""), text)
            for name, text in loads.texts.items()
            if name in modules
        )
        return loads if as_loaded else None

    def read(self, nodes: Iterable[Node]) -> None:
        """Read the code of nodes now, so that later edits do not count."""
        for node in nodes:
            self.of(node)

    def functions(self, node: Node) -> frozenset[str]:
        """Return the functions that a node's own parameters name."""
        return self._by_params(node).all.functions

    def modules(
        self, node: Node, loads: Sequence[str] | None = None
    ) -> tuple[str, ...]:
        """Return the modules of a user's that a node runs; none for built-in code.

        A library whose function the parameters name counts as one. `loads` is as in
        `of`.
        """
        code, runs = self.of(node, loads), self._runs(node)
        if id(code) not in self._modules:
            named = [node.kind.home, *runs.all.functions, *code.definitions]
            modules = {name.partition(":")[0] for name in named if name}
            self._modules[id(code)] = tuple(sorted(filter(_is_theirs, modules)))
        return self._modules[id(code)]

    def by_kind(self, nodes: Iterable[Node]) -> dict[str, Code]:
        """Return the code of each kind that runs code of a user's."""
        # Nodes that are alike share one object.
        codes = {
            (n.kind.name, id(code)): code
            for n in nodes
            for code in [self.of_result(n, n.receipt)]
        }
        code_of: dict[str, Code] = {}
        for (kind, _), code in codes.items():
            if form_of(code.definitions) == PROJECT_FORM:
                known = code_of.get(kind, Code())
                code_of[kind] = Code(
                    definitions={**known.definitions, **code.definitions},
                    doubts={**known.doubts, **code.doubts},
                )
        return code_of

    def record(self, node: Node, loads: Sequence[str] | None = None) -> CodeRecord:
        """Return the record of a node's code, for the log; `loads` is as in `of`."""
        code, kind = self.of(node, loads), node.kind
        read = self._sources.read()
        form = form_of(code.definitions)
        return CodeRecord(kind.name, kind.version, form, code.definitions, read)

    def files(self) -> Mapping[str, str]:
        """Return the digest of each module read so far; empty without a file."""
        return self._sources.read()

    def changed(self) -> list[str]:
        """Return the modules read so far whose files are not as they were."""
        return self._sources.changed()

    def are_as_before(self, files: Mapping[str, str]) -> bool:
        """Return whether modules still have the digests that a record gives.

        Then all code that was read from them is what it was, and none needs parsing.
        """
        return all(self._sources.digest(name) == old for name, old in files.items())

    def _runs(self, node: Node) -> _Runs:
        runs = self._nodes.get(node)
        if runs is None:
            runs = self._by_params(node)
            for name, taken in node.inputs.items():
                if issubclass(node.kind.inputs[name].edge, Weights | Trajectory):
                    for result in taken:
                        runs = self._beside(runs, self._runs(result.node))
            self._nodes[node] = runs
        return runs

    def _by_params(self, node: Node) -> _Runs:
        kind, params = node.kind, node.params
        known = self._of_params.get(id(params))
        if known is None:
            shape = signature(kind, params)
            if shape not in self._shapes:
                runs = _Runs(loaded(kind, params), carried(kind, params))
                self._shapes[shape] = runs
            known = self._of_params[id(params)] = params, self._shapes[shape]
        return known[1]

    def _beside(self, runs: _Runs, network: _Runs) -> _Runs:
        key = id(runs), id(network)
        if key not in self._with:
            passed = network.passed
            both = _Runs(runs.all | passed, runs.passed | passed)
            self._with[key] = both, runs, network
        return self._with[key][0]

    def _code(self, kind: Kind, code: Loaded, loads: tuple[str, ...] | None) -> Code:
        named = (*code.functions, *code.models, *([kind.home] if kind.home else []))
        tops = frozenset(name.partition(":")[0].partition(".")[0] for name in named)
        tops -= {OWN}
        if tops not in self._projects:
            names = Names(self._sources, tops)
            definitions = Definitions(names, self._library)
            self._projects[tops] = Entries(names, definitions), definitions
        entries, definitions = self._projects[tops]
        functions, beside = entries.functions(kind), entries.beside(code)
        if not functions or beside is None:
            return Code()
        paths = definitions.reached(functions, beside, loads)
        digests = {name: definitions.digest(name) for name in sorted(paths)}
        lines = [f"{form_of(digests)}", *(f"{n} {d}" for n, d in digests.items())]
        total = sha256("\n".join(lines).encode()).hexdigest()
        whole = [n.partition(":")[0] for n in digests if n.endswith(f":{WHOLE}")]
        doubts = {n: definitions.reason(n) for n in whole}
        asks = any(definitions.asks_for_all(f"{name}:{WHOLE}") for name in whole)
        return Code(total, digests, paths, doubts, asks)
