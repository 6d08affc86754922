"""Source files of the project's modules; no module is imported."""

from __future__ import annotations

import sys
from functools import cache
from hashlib import sha256
from pathlib import Path

from curvflow.errors import RequestError
from curvflow.flows.plan.code.cells import MAIN, typed_text
from curvflow.flows.plan.code.modules import Module, read_module

OWN = "curvflow"

# A factory may name a function of these; their releases are recorded with every run.
LIBRARIES = frozenset(
    {
        *("torch", "torchvision", "torchaudio", "numpy", "scipy", "sklearn", "pandas"),
        *("xarray", "zarr", "pydantic", "pydantic_core", "matplotlib", "transformers"),
    }
)
_INSTALLED = ("site-packages", "dist-packages")


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

    def module(self, name: str, tops: frozenset[str]) -> Module | None:
        """Return a module of the project; None if it has no readable source in it.

        Raises:
            RequestError: the study's module lies next to it, and this process has
                imported another of its name.
        """
        top = name.partition(".")[0]
        if top in LIBRARIES or not name:
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
            if is_typed(name):
                return _digest(typed_text())
            place = self._place(name)
            is_file = place is not None and place.is_file()
            data = place.read_bytes() if place and is_file else None
            return "" if data is None else _digest(data)
        return self._digests[name]

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
            data = place.read_bytes()
        except OSError:
            return None, ""
        return _parsed(name, data, place.name == "__init__.py"), _digest(data)

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
    for place in (base / name / "__init__.py", base / f"{name}.py", base / name):
        if place.exists():
            return place.absolute()
    return None


@cache
def _parsed(name: str, data: bytes, is_package: bool) -> Module | None:
    try:
        return read_module(name, data, is_package=is_package)
    except SyntaxError:
        return None


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:16]
