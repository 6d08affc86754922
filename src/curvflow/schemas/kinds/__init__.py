"""Declarations of the built-in kinds, found by their files; no list is kept.

A file names its declaration `KIND`, or those of a family `KINDS`.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

from curvflow.errors import RequestError, UnknownNameError, nearest
from curvflow.schemas.kind import Kind

_added: dict[str, Kind] = {}


@cache
def declarations() -> dict[str, ModuleType]:
    """Return the module that declares each built-in kind, by the kind's name."""
    modules = map(import_module, _modules())
    return {kind.name: module for module in modules for kind in kinds_of(module)}


@cache
def declaration(name: str) -> ModuleType | None:
    """Return the module that declares a built-in kind; others stay unloaded.

    Most kinds are in a file of the same name. Where there is none of this name, all
    are looked through, as for one of a family.
    """
    last = name.rpartition(".")[2]
    alike = [path for path in _modules() if path.endswith((f".{last}", f".{last}_"))]
    for module in map(import_module, alike):
        if any(kind.name == name for kind in kinds_of(module)):
            return module
    return declarations().get(name)


@cache
def _modules() -> tuple[str, ...]:
    """Return the names of the modules that declare kinds."""
    return tuple(
        info.name
        for info in pkgutil.walk_packages(__path__, f"{__name__}.")
        if not info.ispkg and not info.name.startswith(f"{__name__}.shared.")
    )


def kinds_of(module: ModuleType) -> tuple[Kind, ...]:
    """Return the kinds that a module declares."""
    family: tuple[Kind, ...] = getattr(module, "KINDS", ())
    return family or (module.KIND,)


@cache
def _shipped() -> dict[str, Kind]:
    modules = dict.fromkeys(declarations().values())
    return {kind.name: kind for module in modules for kind in kinds_of(module)}


@cache
def plugins() -> tuple[EntryPoint, ...]:
    """Return the modules of kinds that installed packages name, as they are now."""
    return tuple(entry_points(group="curvflow.kinds"))


@cache
def _load_plugins() -> None:
    for entry in plugins():
        entry.load()  # a module that registers its kinds by @curvflow.stage


def add(kind: Kind) -> None:
    """Make a kind of the user's own known under its name.

    Args:
        kind: the declaration; the same function may be declared again, as a notebook
            does when a cell is run twice.

    Raises:
        RequestError: another kind has the name.
    """
    other = _added.get(kind.name) or _shipped().get(kind.name)
    if other is not None and other.home != kind.home:
        raise RequestError(
            f"{kind.name}: expected a name of its own for {kind.home}, got that of "
            f"{other.home or 'a built-in kind'}. Rename one of them."
        )
    _added[kind.name] = kind


def all_kinds() -> dict[str, Kind]:
    """Return every known kind by name, sorted."""
    _load_plugins()
    return dict(sorted({**_shipped(), **_added}.items()))


def known_kind(name: str) -> Kind | None:
    """Return the kind of this name, None if there is none; see `declaration`."""
    _load_plugins()
    if name in _added:
        return _added[name]
    module = declaration(name)
    kinds = kinds_of(module) if module else ()
    return next((kind for kind in kinds if kind.name == name), None)


def find_kind(name: str) -> Kind:
    """Return the kind of this name.

    Args:
        name: as `use:` gives it.

    Returns:
        The declaration.

    Raises:
        UnknownNameError: there is no such kind.
    """
    kind = known_kind(name)
    if kind is None:
        raise UnknownNameError(
            f"expected a kind, got '{name}'. {nearest(name, all_kinds())}"
        )
    return kind
