"""A study file's content, and the errors that point into it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from curvflow.errors import Place, StudyError, nearest
from curvflow.schemas.nodes import Label
from curvflow.schemas.study.yaml_source import (
    Location,
    Path,
    SourceNode,
    dotted_path,
    has_child,
    parse,
    short_yaml,
)


@dataclass(frozen=True)
class Document:
    """The nodes of a study file, and the errors that point into it."""

    root: SourceNode

    def at(self, path: Path) -> SourceNode | None:
        """Return the node at a path, None if there is none."""
        item = self.root
        for part in path:
            if not has_child(item, part):
                return None
            item = item.value[part]
        return item

    def place(self, path: Path, *, key: bool = False) -> Location:
        """Return the location of a value or key, or of the key above a missing one."""
        item, spot, whole = self.root, self.root.place, True
        for part in path:
            if not has_child(item, part):
                whole = False
                break
            item, spot = item.value[part], item.keys.get(part, item.value[part].place)
        return item.place if whole and not key else spot

    def error(
        self, path: Path, message: str, hint: str = "", *, key: bool = False
    ) -> StudyError:
        """Return the StudyError for a value of the document, or for its key."""
        spot = self.place(path, key=key)
        return StudyError(dotted_path(path), message, place=spot, hint=hint)

    def refuse_unknown(self, path: Path, known: Iterable[str], expected: str) -> None:
        """Raise StudyError for a key of a mapping that is not `known`."""
        names = list(known)
        for name in self.mapping(path):
            if name not in names:
                message = f"expected {expected}, got {short_yaml(name)}"
                hint = nearest(str(name), names)
                raise self.error((*path, name), message, hint, key=True)

    def mapping(
        self, path: Path, expected: str = "a mapping"
    ) -> dict[Label, SourceNode]:
        """Return the mapping at a path, empty if it is missing."""
        item = self.at(path)
        if item is None:
            return {}
        if not isinstance(item.value, dict):
            message = f"expected {expected}, got {short_yaml(item.plain())}"
            raise self.error(path, message, "Write lines of the form 'key: value'.")
        return item.value


def read_document(text: str, file: str) -> Document:
    """Parse a study file, YAML 1.2, with the location of every key and value."""

    def locate(line: int, column: int) -> Location:
        return Place(file, line + 1, column + 1)

    root = parse(text, locate)
    if root is None:
        raise StudyError(
            "",
            "expected a study, got an empty file",
            place=locate(0, 0),
            hint="`curvflow init` writes one to start from.",
        )
    if not isinstance(root.value, dict):
        message = f"expected a mapping, got {short_yaml(root.plain())}"
        hint = "A study has the keys 'study', 'axes' and 'stages'."
        raise StudyError("", message, place=root.place, hint=hint)
    return Document(root)
