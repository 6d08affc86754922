"""Source files of the project's modules, and the code that parameters name.

Functions that parameters name are checked to be there before a run. No module is
imported for it: it is located by Python's own finders, and read as text.
"""

from __future__ import annotations

import ast
import os
import stat
import sys
import time
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from curvflow.errors import RequestError, nearest
from curvflow.flows.plan.code.cells import MAIN, typed_text
from curvflow.flows.plan.code.modules import ON_IMPORT, Module, read_module
from curvflow.schemas.kind import Kind
from curvflow.schemas.nodes import Label
from curvflow.schemas.params import Params
from curvflow.schemas.study.study import Stage
from curvflow.schemas.study.yaml_source import Path as KeyPath

OWN = "curvflow"

# A factory may name a function of these; their releases are recorded with every run.
LIBRARIES = frozenset(
    {
        *("torch", "torchvision", "torchaudio", "numpy", "scipy", "sklearn", "pandas"),
        *("xarray", "zarr", "pydantic", "pydantic_core", "matplotlib", "transformers"),
    }
)
_INSTALLED = ("site-packages", "dist-packages")


SETTLED = 2_000_000_000  # nanoseconds since its last change after which a file is kept
ALL = ".*"  # after a package: the names of its modules


class Sources:
    """The modules of the project, located by file name and read on demand.

    The project is this package, the top-level packages of a user's kinds and factories,
    and what lies under the study's folder.
    """

    def __init__(self, folder: Path, package: Path) -> None:
        self._folder, self._package = folder.resolve(), package
        self._places: dict[str, Path | None] = {}
        self._modules: dict[str, Module | None] = {}
        self._digests: dict[str, str] = {}
        self._beside: dict[str, bool] = {}

    def module(self, name: str, tops: frozenset[str]) -> Module | None:
        """Return a module of the project; None if it has no readable source in it.

        Raises:
            RequestError: the study's module lies next to it, and this process has
                imported another of its name.
        """
        top = name.partition(".")[0]
        if top in LIBRARIES or not name:
            return None
        if name.endswith(ALL):
            self._digests[name] = self.digest(name)
            return None
        if top in tops:
            self._refuse_namesake(top)
        if top == OWN or top in tops or self._is_beside(top):
            if name not in self._modules:
                self._modules[name], self._digests[name] = self._read(name)
            return self._modules[name]
        return None

    def read(self) -> dict[str, str]:
        """Return the digest of each module read so far; empty without a file."""
        return dict(self._digests)

    def changed(self) -> list[str]:
        """Return the modules read so far whose files have changed."""
        now = Sources(self._folder, self._package)
        return [n for n, digest in self._digests.items() if now.digest(n) != digest]

    def digest(self, name: str) -> str:
        """Return the digest of a module's file, which is not parsed for it."""
        if name not in self._digests:
            if name.endswith(ALL):
                return _digest("\n".join(self.inner(name.removesuffix(ALL))).encode())
            if is_typed(name):
                return _digest(typed_text())
            place = self._place(name)
            content = _content(str(place)) if place else None
            return content.digest if content else ""
        return self._digests[name]

    def inner(self, name: str) -> list[str]:
        """Return the modules in the folder of a package, in order of their names."""
        place = self._place(name)
        if place is None or (place.is_file() and place.name != "__init__.py"):
            return []
        folder = place if place.is_dir() else place.parent
        return [
            f"{name}.{path.stem}"
            for path in sorted(folder.iterdir())
            if path.suffix == ".py" or (path / "__init__.py").is_file()
            if path.stem != "__init__" and path.stem.isidentifier()
        ]

    def _refuse_namesake(self, top: str) -> None:
        beside, loaded = _file(self._folder, top), _loaded(top)
        if not beside or not beside.is_file() or not loaded or not loaded.exists():
            return
        if not loaded.samefile(beside):
            raise RequestError(
                f"{top}: expected the module next to the study, {beside}, got one that "
                f"was imported before, {loaded}. Restart Python, or rename one of them."
            )

    def _is_beside(self, top: str) -> bool:
        if top not in self._beside:
            self._beside[top] = self._lies_beside(top)
        return self._beside[top]

    def _lies_beside(self, top: str) -> bool:
        place = self._place(top)
        if place is None:
            return False
        for path in (place, place.resolve()):  # a link beside the study counts as there
            if path.is_relative_to(self._folder):
                return not set(_INSTALLED) & set(path.relative_to(self._folder).parts)
        return False

    def _read(self, name: str) -> tuple[Module | None, str]:
        if is_typed(name):
            data = typed_text()
            return _parsed(name, data, False), _digest(data)
        place = self._place(name)
        if place is None:
            return None, ""
        if place.is_dir():
            return Module(name, name), ""  # a package without an __init__ file
        try:
            content = _content(str(place))
        except OSError:
            return None, ""
        if content is None:
            return None, ""
        is_package = place.name == "__init__.py"
        return _parsed(name, content.data, is_package), content.digest

    def _place(self, name: str) -> Path | None:
        if name not in self._places:
            self._places[name] = self._locate(name)
        return self._places[name]

    def _locate(self, name: str) -> Path | None:
        parent, _, last = name.rpartition(".")
        if name == OWN:
            return _file(self._package.parent, self._package.name)
        if name.partition(".")[0] != OWN and (loaded := _loaded(name)):
            return loaded
        if parent:
            above = self._place(parent)
            if above is None or (above.is_file() and above.name != "__init__.py"):
                return None
            return _file(above if above.is_dir() else above.parent, last)
        # The files of a package come before any folder of its name.
        bases = [self._folder, *(Path(entry) for entry in sys.path)]
        places = [place for base in bases if (place := _file(base, last))]
        return next((p for p in places if p.is_file()), places[0] if places else None)


def is_typed(name: str) -> bool:
    """Return whether a module was typed: it is the main module and has no file."""
    return name == MAIN and not getattr(sys.modules.get(MAIN), "__file__", None)


def _loaded(name: str) -> Path | None:
    file = getattr(sys.modules.get(name), "__file__", None)
    return Path(file).absolute() if file and file.endswith(".py") else None


def _file(base: Path, name: str) -> Path | None:
    # Of text, as a plan looks for some hundred modules in several places each.
    inner = os.path.join(base, name)  # noqa: PTH118
    for place in (f"{inner}{os.sep}__init__.py", f"{inner}.py", inner):
        if os.path.exists(place):  # noqa: PTH110
            return Path(place).absolute()
    return None


@dataclass(frozen=True, slots=True)
class _Content:
    """Content of a file.

    Attributes:
        state: times, size and number of the file.
        data: its bytes.
        digest: of these.
    """

    state: tuple[int, ...]
    data: bytes
    digest: str


_contents: dict[str, _Content] = {}


def _content(path: str) -> _Content | None:
    """Return what a file holds, read anew unless it is as it was; None if it is none.

    A plan asks a thousand times. As two changes in quick succession may bear one time,
    what has just been changed is not kept.
    """
    try:
        now = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(now.st_mode):
        return None
    times = now.st_mtime_ns, now.st_ctime_ns
    state = (*times, now.st_size, now.st_ino, now.st_dev)
    known = _contents.get(path)
    if known is None or known.state != state:
        data = Path(path).read_bytes()
        known = _Content(state, data, _digest(data))
        if time.time_ns() - max(times) > SETTLED:
            _contents[path] = known
    return known


@cache
def _parsed(name: str, data: bytes, is_package: bool) -> Module | None:
    try:
        return read_module(name, data, is_package=is_package)
    except SyntaxError:
        return None


_DIGITS = 16


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:_DIGITS]


def is_of_text(digest: str, content: str) -> bool:
    """Return whether a module's digest is that of a file with this SHA-256."""
    return digest == content[:_DIGITS]


_PLAIN = (str, int, float, bool, type(None))


@dataclass(frozen=True, slots=True)
class Loaded:
    """Code that parameters name.

    Attributes:
        modules: run as a whole.
        functions: of the user's own, `module:function`.
        models: classes of parameters, whose methods run; `module:Class`.
    """

    modules: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()

    def __or__(self, other: Loaded) -> Loaded:
        return Loaded(
            self.modules | other.modules,
            self.functions | other.functions,
            self.models | other.models,
        )


def loaded(kind: Kind, params: Params) -> Loaded:
    """Return the code that the parameters of a node name."""
    return _named(kind, params, kind.loads, params)


def carried(kind: Kind, params: Params) -> Loaded:
    """Return the part that runs again where the node's result is taken as Weights."""
    carried_code = Loaded()
    for subtree in kind.carries:
        inner = [path for path in kind.loads if f"{path}.".startswith(f"{subtree}.")]
        carried_code |= _named(kind, params, inner, _at(params, subtree))
    return carried_code


def signature(kind: Kind, params: Params) -> Hashable:
    """Return the parameters that `loaded` and `carried` depend on; most are alike."""
    shape: list[object] = [kind.name, kind.home]
    shape += [_at(params, path) for path in kind.loads]
    pending: list[tuple[str, Any]] = [("", params)]
    while pending:
        name, value = pending.pop()
        if isinstance(value, Params):
            inner = type(value)
            shape += (name, inner, _called(value))
            pending += [(n, getattr(value, n)) for n in _fields_with_more(inner)]
        elif isinstance(value, dict):
            pending += [(name, v) for v in value.values()]
        elif isinstance(value, tuple | list):
            pending += [(name, v) for v in value]
    return tuple(shape)


def naming(params: Params) -> Iterator[tuple[KeyPath, Params, str]]:
    """Yield what names code: where, the parameters, and the function or class."""
    for path, model in _models(params):
        if name := _called(model):
            yield (*path, model.names_code_in), model, name


def _named(kind: Kind, params: Params, paths: Collection[str], start: object) -> Loaded:
    models = [model for _, model in _models(start)]
    return Loaded(
        frozenset(f"{kind.loads[p]}.{_at(params, p) or 'factory'}" for p in paths),
        frozenset(filter(None, map(_called, models))),
        frozenset(f"{type(m).__module__}:{type(m).__qualname__}" for m in models),
    )


def _called(params: Params) -> str:
    """Return the function or class that parameters name; empty if none."""
    name = params.names_code_in
    return str(getattr(params, name)) if name else ""


def _at(value: object, path: str) -> object:
    for name in _steps(path):
        value = getattr(value, name, None)
    return value


@cache
def _steps(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))


def _models(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Params]]:
    inner: Iterable[tuple[Label, object]] = ()
    if isinstance(value, Params):
        yield path, value
        inner = ((n, getattr(value, n)) for n in _fields_with_more(type(value)))
    elif isinstance(value, tuple | list):
        inner = enumerate(value)
    elif isinstance(value, dict):
        inner = value.items()
    for key, item in inner:
        yield from _models(item, (*path, key))


@cache
def _fields_with_more(model: type[Params]) -> tuple[str, ...]:
    fields = model.model_fields
    return tuple(n for n, field in fields.items() if _holds_more(field.annotation))


def _holds_more(annotation: object) -> bool:
    if annotation in _PLAIN or annotation is Ellipsis or annotation is None:
        return False
    arguments = get_args(annotation)
    if get_origin(annotation) is Literal:
        return False
    if not arguments:
        return True
    return any(_holds_more(argument) for argument in arguments)


# A module that uses one of these may have names that its text does not show.
_HIDDEN = frozenset(
    {"__getattr__", "exec", "globals", "locals", "setattr", "sys", "vars"}
)


class NamedCode:
    """The functions that the parameters of a study name, each looked for once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._faults: dict[str, tuple[str, str] | None] = {}

    def seek(self, stage: Stage, params: Params, labels: Mapping[str, Label]) -> None:
        """Check from text alone that the functions of parameters can be imported.

        Raises:
            StudyError: there is no such module, or its text has no such name.
        """
        for path, _, name in naming(params):
            if name not in self._faults:
                self._faults[name] = self._fault(*name.split(":"))
            if fault := self._faults[name]:
                raise stage.error(path, *fault, labels=labels)

    def _fault(self, module: str, function: str) -> tuple[str, str] | None:
        """Return the expectation and the remedy; None if nothing is wrong."""
        spec = None if is_typed(module) else self._spec(module)
        if spec is None:
            return None if self._is_elsewhere(module) else _no_module(module)
        origin = Path(spec.origin or "")
        # What is compiled, or in an archive, cannot be looked into here.
        if origin.suffix != ".py" or not origin.is_file():
            return None
        try:
            text = origin.read_bytes()
            names = read_module(module, text, is_package=spec.parent == module)
        except SyntaxError as error:
            place = f"{origin.name}:{error.lineno}"
            reason = f"got a syntax error in line {error.lineno} of {origin}"
            return f"{place}: expected a module that can be imported, {reason}", ""
        except OSError as error:
            reason = f"got {origin} ({error.strerror})"
            return f"expected a module that can be read, {reason}", ""
        known = {*names.parts, *names.aliases, *names.lazy} - {ON_IMPORT}
        bound = known | _bound(text)
        if names.stars or function in bound or _HIDDEN & bound:
            return None
        message = f"expected a function of module '{module}', got '{function}'"
        return message, nearest(function, known)

    def _spec(self, module: str) -> ModuleSpec | None:
        places: list[str] | None = [str(self._folder), *sys.path]
        spec, name = None, ""
        for part in module.split("."):
            name = f"{name}.{part}".lstrip(".")
            spec = PathFinder.find_spec(name, places) if places else None
            places = spec.submodule_search_locations if spec else None
        return spec

    def _is_elsewhere(self, module: str) -> bool:
        """Return whether a module may come from a place without files."""
        top = module.partition(".")[0]
        if module in sys.modules:
            return True
        return self._spec(top) is None and (
            top in sys.modules or find_spec(top) is not None
        )


def _no_module(module: str) -> tuple[str, str]:
    return (
        f"expected a module that can be imported, got '{module}'",
        f"Put {module.replace('.', '/')}.py next to the study file, or install it.",
    )


def _bound(text: bytes) -> set[str]:
    """Return the names that a text uses or declares anywhere, also within functions."""
    nodes = list(ast.walk(ast.parse(text)))
    declared = (node.names for node in nodes if isinstance(node, ast.Global))
    used = (node.id for node in nodes if isinstance(node, ast.Name))
    return {*used, *chain.from_iterable(declared)}
