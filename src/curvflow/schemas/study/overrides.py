"""Profiles and `--set`: named and single changes of a study's text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from curvflow.errors import StudyError, nearest
from curvflow.schemas.keys import normalised
from curvflow.schemas.nodes import Label
from curvflow.schemas.study.document import Document
from curvflow.schemas.study.yaml_source import (
    Location,
    SourceNode,
    has_child,
    parse,
    short_yaml,
)

STUDY = "the study"


def resolve(
    document: Document, profile: str | None, overrides: Sequence[str] = ()
) -> Document:
    """Apply a profile, then each `a.b=c` in order; leave out all profiles."""
    names = profile_names(document)
    if profile is not None and profile not in names:
        raise StudyError(
            "profiles",
            f"expected a profile of the study, got {short_yaml(profile)}",
            place=f"--profile {profile}",
            hint=nearest(profile, names),
        )
    entries = dict(document.root.value)
    entries.pop("profiles", None)
    root = SourceNode(entries, document.root.place, document.root.keys).copied()
    if profile is not None:
        _apply_profile(document, names[profile], root)
    for override in overrides:
        _override(root, override)
    return Document(root)


def profile_names(document: Document) -> dict[str, Label]:
    """Return the profiles of a study in order, from text to the key as written."""
    return {str(name): name for name in document.mapping(("profiles",))}


def blame_profile(document: Document, name: Label, error: StudyError) -> StudyError:
    """Return an error of a profile so that it points at the profile."""
    path = ("profiles", name)
    item = document.at(path)
    if item and error.place in _places(item):
        return error
    hint = f"{error.hint} It is so with profile {short_yaml(name)}.".lstrip()
    spot = document.place(path, key=True)
    return StudyError(error.path, error.message, place=spot, hint=hint)


def _places(item: SourceNode) -> set[Location]:
    inner = [_places(child) for _, child in item.children()]
    return {item.place, *item.keys.values()}.union(*inner)


def _apply_profile(document: Document, name: Label, root: SourceNode) -> None:
    path = ("profiles", name)
    for target, value in document.mapping(path).items():
        spot = document.place((*path, target), key=True)
        _set_value(root, str(target), value.copied(), spot)


def _override(root: SourceNode, override: str) -> None:
    target, equals, text = (part.strip() for part in override.partition("="))
    target = normalised(target)
    path = tuple(target.split("."))
    spot = f"--set {' '.join(override.split())}"
    value = parse(text, lambda line, column: spot, path) if equals else None
    if value is None or not target:
        raise StudyError(
            "",
            f"expected path=value, got {short_yaml(override)}",
            place="--set",
            hint="Write it as axes.seed=3; null stands for no value.",
        )
    _set_value(root, target, value, spot)


def _set_value(
    root: SourceNode, target: str, value: SourceNode, spot: Location
) -> None:
    """Set a value; all but the last part of its path must exist."""
    *parents, last = target.split(".")
    item, where = root, STUDY
    for depth, name in enumerate(parents):
        key = _key(item, name)
        if key is None:
            _raise_unknown_path(target, item, name, where, spot)
        item, where = item.value[key], ".".join(parents[: depth + 1])
    existing = _key(item, last)
    is_taken = isinstance(item.value, dict) and last
    if existing is None and (
        not is_taken or (item is root and _nested_paths(root, last))
    ):
        _raise_unknown_path(target, item, last, where, spot)
    key = last if existing is None else existing
    item.value[key] = value
    if isinstance(item.value, dict):
        item.keys[key] = spot


def _key(item: SourceNode, name: str) -> Label | None:
    if isinstance(item.value, dict):
        return next((key for key in item.value if str(key) == name), None)
    if name.isdecimal() and has_child(item, int(name)):
        return int(name)
    return None


def _nested_paths(root: SourceNode, name: str) -> list[str]:
    """Return the paths, one level down, of keys with this name."""
    return [
        f"{key}.{name}"
        for key, item in root.value.items()
        if isinstance(item.value, dict) and _key(item, name) is not None
    ]


def _raise_unknown_path(
    target: str, item: SourceNode, name: str, where: str, spot: Location
) -> NoReturn:
    message = f"expected a key of {where}, got '{name}'"
    if isinstance(item.value, dict):
        hint = nearest(name, map(str, item.value))
        if paths := _nested_paths(item, name) if where == STUDY else []:
            rest = target.removeprefix(name)
            hint = f"Did you mean {' or '.join(path + rest for path in paths)}?"
    elif isinstance(item.value, list):
        message = f"expected an index below {len(item.value)} in {where}, got '{name}'"
        hint = "Indices start at 0."
    else:
        message = f"expected a mapping in {where}, got {short_yaml(item.value)}"
        hint = f"Set {where} as a whole."
    raise StudyError(target, message, place=spot, hint=hint)
