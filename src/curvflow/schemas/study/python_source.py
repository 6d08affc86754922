"""Reader of a study given as Python mappings and lists."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from curvflow.errors import StudyError
from curvflow.schemas.keys import normalised
from curvflow.schemas.nodes import Label
from curvflow.schemas.study.document import Document
from curvflow.schemas.study.yaml_source import (
    SHORTER,
    Extent,
    Path,
    SourceNode,
    dotted_path,
    short_yaml,
)

PLAIN = "expected text, a number, a list or a mapping"


def plain_document(data: Mapping[str, object], name: str) -> Document:
    """Copy plain data to a document; NumPy numbers and arrays become Python's."""
    return Document(_Reader(name).read(data, ()))


class _Reader:
    """Copies Python data to source nodes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.open: list[object] = []
        self.extent = Extent()

    def place(self, path: Path) -> str:
        # So that errors of a profile can be distinguished from those of the study.
        in_profile = path[:1] == ("profiles",) and len(path) > 1
        return f"{self.name}, profile {path[1]}" if in_profile else self.name

    def error(self, path: Path, message: str, hint: str) -> StudyError:
        return StudyError(dotted_path(path), message, place=self.place(path), hint=hint)

    def read(self, value: object, path: Path) -> SourceNode:
        value = _from_numpy(value)
        self.count(value, path)
        if not isinstance(value, Mapping | list | tuple | range):
            return SourceNode(self.scalar(value, path), self.place(path))
        if any(value is item for item in self.open):
            message = f"expected plain data, got a {type(value).__name__} in itself"
            raise self.error(path, message, "Write the value out.")
        self.open.append(value)
        try:
            if isinstance(value, Mapping):
                return self.mapping(value, path)
            items = [self.read(item, (*path, n)) for n, item in enumerate(value)]
            return SourceNode(items, self.place(path))
        finally:
            self.open.pop()

    def count(self, value: object, path: Path) -> None:
        if message := self.extent.excess(value, len(self.open)):
            raise self.error(path, message, SHORTER)

    def mapping(self, value: Mapping[Any, object], path: Path) -> SourceNode:
        result = SourceNode({}, self.place(path))
        for key, item in self.keys(value, path):
            result.keys[key] = self.place((*path, key))
            result.value[key] = self.read(item, (*path, key))
        return result

    def keys(
        self, value: Mapping[Any, object], path: Path
    ) -> Iterator[tuple[Label, object]]:
        seen = set()
        for given, item in value.items():
            key = _from_numpy(given)
            if not isinstance(key, str | int | float):
                message = f"expected text or a number as a key, got {_typed(given)}"
                raise self.error(path, message, "Write the key as text.")
            inside = (*path, key)
            self.scalar(key, inside)
            self.count(key, inside)
            key = normalised(key)
            # `1` and `"1"` are one on the screen.
            if str(key) in seen:
                message = f"expected each key once, got {short_yaml(key)} a second time"
                raise self.error(inside, message, "Remove one of them.")
            seen.add(str(key))
            yield key, item

    def scalar(self, value: object, path: Path) -> Label | None:
        if isinstance(value, float) and not math.isfinite(value):
            message = f"expected a finite number, got {value}"
            raise self.error(path, message, "Write a number.")
        # Exact types only: an enumeration or a subclass would lose what it adds.
        for plain in (bool, int, float, str):
            if type(value) is plain:
                return value
        if value is None:
            return None
        raise self.error(path, f"{PLAIN}, got {_typed(value)}", _remedy(value))


def _from_numpy(value: object) -> object:
    tolist = getattr(value, "tolist", None)  # of NumPy's arrays and scalars
    return tolist() if callable(tolist) else value


def _typed(value: object) -> str:
    return f"{short_yaml(value)} of type {type(value).__qualname__}"


def _remedy(value: object) -> str:
    if not callable(value):
        return "Convert it."
    module, name = (getattr(value, key, "") for key in ("__module__", "__qualname__"))
    if getattr(sys.modules.get(module), name, None) is value:
        return f"Name it as text, '{module}:{name}'."
    return "Name it as text, such as 'module:function', and define it in a module."
