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
    shown,
)


@dataclass(frozen=True)
class Document:
    """A study file's content, and the errors that point into it."""

    root: SourceNode

    def at(self, path: Path) -> SourceNode | None:
        """Return what is written at a path, if anything is."""
        item = self.root
        for part in path:
            if not has_child(item, part):
                return None
            item = item.value[part]
        return item

    def place(self, path: Path, *, key: bool = False) -> Location:
        """Return where a value is written.

        Args:
            path: from the root of the document.
            key: give the place of the key rather than that of the value.

        Returns:
            Its place; for a value that is not there, that of the nearest key above.
        """
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
        """Make the error for a value of the document.

        Args:
            path: from the root of the document.
            message: `expected <what>, got <value>`.
            hint: what to do.
            key: point at the key rather than at the value.

        Returns:
            The error, to be raised.
        """
        spot = self.place(path, key=key)
        return StudyError(dotted_path(path), message, place=spot, hint=hint)

    def refuse_unknown(self, path: Path, known: Iterable[str], what: str) -> None:
        """Check that the keys of a mapping are known.

        Args:
            path: of the mapping.
            known: the keys it may have.
            what: what a key is, such as `a key of a study`.

        Raises:
            StudyError: the value is no mapping, or has another key.
        """
        names = list(known)
        for name in self.mapping(path):
            if name not in names:
                message = f"expected {what}, got {shown(name)}"
                hint = nearest(str(name), names)
                raise self.error((*path, name), message, hint, key=True)

    def mapping(self, path: Path, what: str = "a mapping") -> dict[Label, SourceNode]:
        """Return a mapping of the document, empty if nothing is written there.

        Args:
            path: of the mapping.
            what: what is expected there.

        Returns:
            Key to what is written.

        Raises:
            StudyError: something else is written there.
        """
        item = self.at(path)
        if item is None:
            return {}
        if not isinstance(item.value, dict):
            message = f"expected {what}, got {shown(item.plain())}"
            raise self.error(path, message)
        return item.value


def read_document(text: str, file: str) -> Document:
    """Read a study file.

    Args:
        text: its content, YAML 1.2.
        file: its name, for messages.

    Returns:
        The content with the place of every key and value.

    Raises:
        StudyError: the text is not YAML, is empty, repeats a key, is no mapping, or
            holds NaN, an infinity or a value beyond plain data.
    """

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
        message = f"expected a mapping, got {shown(root.plain())}"
        hint = "A study has the keys 'study', 'axes' and 'stages'."
        raise StudyError("", message, place=root.place, hint=hint)
    return Document(root)
