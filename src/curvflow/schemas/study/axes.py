"""Axes: named lists of values, which become dimensions of results."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from curvflow.errors import nearest
from curvflow.schemas.keys import normalised
from curvflow.schemas.nodes import Label
from curvflow.schemas.study.document import Document
from curvflow.schemas.study.yaml_source import Path, SourceNode, short_yaml

# Dimensions and columns that curvflow itself gives to results.
RESERVED = (
    *("epoch", "node", "quantity", "reason", "slot", "stage", "status"),
    *("seconds", "seconds_per_epoch"),
)
MAX_LABELS = 1_000_000  # of all axes of a study
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")


@dataclass(frozen=True)
class Axis:
    """A named list of values.

    Attributes:
        name: of the dimension.
        labels: its coordinate; unique.
        values: what `${name}` stands for, one per label.
        form: how it was written, `count` being `n` for 0 .. n-1.
    """

    name: str
    labels: tuple[Label, ...]
    values: tuple[Any, ...]
    form: Literal["count", "list", "mapping"] = "list"
    _read: dict[tuple[tuple[str, ...], bool], dict[Label, Any]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    @cached_property
    def known(self) -> frozenset[Label]:
        """The labels, to look one up."""
        return frozenset(self.labels)

    def by_label(
        self, fields: tuple[str, ...], *, verbatim: bool = False
    ) -> Mapping[Label, Any]:
        """Return what `${name.field}` stands for, by label; `{}` if a label lacks it.

        Values are those that enter keys, or `verbatim` those that are written.
        """
        # Once for all references, for these and the labels may be many.
        if (fields, verbatim) not in self._read:
            values = [_field(value, fields) for value in self.values]
            if not verbatim and self.form != "count":
                values = list(map(normalised, values))
            lacks = any(value is MISSING for value in values)
            read = {} if lacks else dict(zip(self.labels, values, strict=True))
            self._read[fields, verbatim] = read
        return self._read[fields, verbatim]

    def lacking(self, fields: tuple[str, ...]) -> list[Label]:
        """Return the labels whose values lack a field."""
        values = zip(self.labels, self.values, strict=True)
        return [label for label, value in values if _field(value, fields) is MISSING]

    def path(self, label: Label) -> Path:
        """Return the path of a label's value in the study."""
        if self.form == "count":
            return ("axes", self.name)
        step = label if self.form == "mapping" else self.labels.index(label)
        return ("axes", self.name, step)


MISSING = object()


def _field(value: Any, fields: tuple[str, ...]) -> Any:
    for name in fields:
        if not isinstance(value, dict):
            return MISSING
        value = value.get(name, MISSING)
    return value


def is_identifier(name: object) -> bool:
    """Return whether this can name an axis or a stage: 200 letters, digits and `_`."""
    return isinstance(name, str) and _IDENTIFIER.fullmatch(name) is not None


def nearest_label(label: Label, labels: Sequence[Label]) -> str:
    """Return a hint with the closest label of an axis, or with all of them."""
    for known_label in labels:
        if str(known_label) == str(label):  # a number for a text, or the reverse
            return f"Write {short_yaml(known_label)}."
    return nearest(str(label), map(str, labels))


def read_axes(document: Document) -> dict[str, Axis]:
    """Return the axes of a study by name; raise StudyError for bad names or values."""
    axes = {}
    for name, item in document.mapping(("axes",)).items():
        _check_name(document, name)
        axes[str(name)] = _axis(document, str(name), item)
        _check_number(document, axes)
    return axes


def _check_number(document: Document, axes: Mapping[str, Axis]) -> None:
    number = sum(len(axis.labels) for axis in axes.values())
    if number > MAX_LABELS:
        largest = max(axes, key=lambda name: len(axes[name].labels))
        message = f"expected at most {MAX_LABELS:,} labels in all axes, got {number:,}"
        raise document.error(("axes", largest), message, "Use fewer labels.", key=True)


def _check_name(document: Document, name: Label) -> None:
    expected = ""
    if not is_identifier(name):
        expected = "a name of letters, digits and _"
    elif name in RESERVED:
        expected = "a name that curvflow does not use itself"
    if expected:
        message = f"expected {expected}, got {short_yaml(name)}"
        raise document.error(("axes", name), message, "Rename the axis.", key=True)


def _axis(document: Document, name: str, item: SourceNode) -> Axis:
    path = ("axes", name)
    _refuse_references(document, path, item)
    if isinstance(item.value, dict | list) and not item.value:
        message = f"expected at least one value, got {short_yaml(item.plain())}"
        raise document.error(path, message, "Add one, or remove the axis.")
    if isinstance(item.value, dict):
        for label in item.value:
            _check_printable(document, (*path, label), label, key=True)
        values = tuple(value.plain() for value in item.value.values())
        return Axis(name, tuple(item.value), values, "mapping")
    if isinstance(item.value, list):
        return _list_axis(document, path, item)
    if type(item.value) is int and 1 <= item.value <= MAX_LABELS:
        numbers = tuple(range(item.value))
        return Axis(name, numbers, numbers, "count")
    expected = "a list, a mapping of labels to values, or a count"
    hint = "Write labels in brackets, such as [a, b]."
    if type(item.value) is int:
        expected = f"a count from 1 to {MAX_LABELS}"
        hint = "Raise it." if item.value < 1 else "Lower it."
    raise document.error(
        path, f"expected {expected}, got {short_yaml(item.value)}", hint
    )


def _list_axis(document: Document, path: tuple[str, str], item: SourceNode) -> Axis:
    labels: list[Label] = []
    seen: set[Label] = set()
    for index, written in enumerate(item.value):
        label = normalised(written.plain())
        if label is None or isinstance(label, dict | list):
            message = (
                f"expected text, a number or a truth value, got {short_yaml(label)}"
            )
            hint = f"Use a mapping with labels, {path[1]}: {{a: ..., b: ...}}."
            raise document.error((*path, index), message, hint)
        _check_printable(document, (*path, index), label)
        # 1, 1.0 and true are one label in Python, 1 and "1" one in a table.
        if label in seen or str(label) in seen:
            message = f"expected each label once, got {short_yaml(label)} a second time"
            raise document.error((*path, index), message, "Remove one of them.")
        labels.append(label)
        seen |= {label, str(label)}
    # Values as written, for a file may have a name that is not composed.
    values = tuple(written.plain() for written in item.value)
    return Axis(path[1], tuple(labels), values, "list")


def _check_printable(
    document: Document, path: Path, label: Label, *, key: bool = False
) -> None:
    # Labels become names of files and lines on a terminal.
    if not str(label).isprintable():
        message = f"expected a label of printable characters, got {short_yaml(label)}"
        raise document.error(path, message, "Rename it.", key=key)


def _refuse_references(document: Document, path: Path, item: SourceNode) -> None:
    if isinstance(item.value, str) and "${" in item.value:
        message = f"expected a plain value, got {short_yaml(item.value)}"
        raise document.error(path, message, "An axis cannot name another axis.")
    for key, child in item.children():
        _refuse_references(document, (*path, key), child)
