"""Declarations of the built-in kinds, found by their files; no list is kept."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points

from curvflow.errors import UnknownNameError, nearest
from curvflow.schemas.kind import Kind

_added: dict[str, Kind] = {}


@cache
def _built_in() -> dict[str, Kind]:
    kinds = {}
    for info in pkgutil.walk_packages(__path__, f"{__name__}."):
        if not info.ispkg:
            kind: Kind = import_module(info.name).KIND
            kinds[kind.name] = kind
    for entry in entry_points(group="curvflow.kinds"):
        entry.load()  # a module that registers its kinds by @curvflow.stage
    return kinds


def add(kind: Kind) -> None:
    """Make a kind of the user's own known under its name."""
    _added[kind.name] = kind


def all_kinds() -> dict[str, Kind]:
    """Return every known kind by name, sorted."""
    return dict(sorted({**_built_in(), **_added}.items()))


def find_kind(name: str) -> Kind:
    """Return the kind of this name.

    Args:
        name: as `use:` gives it.

    Returns:
        The declaration.

    Raises:
        UnknownNameError: there is no such kind.
    """
    kinds = all_kinds()
    if name not in kinds:
        raise UnknownNameError(f"no kind '{name}'. {nearest(name, kinds)}")
    return kinds[name]
