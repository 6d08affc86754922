"""Templates: parameters with `${axis}` or `${axis.field}`, compiled once."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from curvflow.errors import StudyError, nearest
from curvflow.schemas.keys import normalised
from curvflow.schemas.nodes import Label
from curvflow.schemas.study.axes import Axis
from curvflow.schemas.study.document import Document
from curvflow.schemas.study.yaml_source import Path, SourceNode, short_yaml

REFERENCE = re.compile(r"\$\{([A-Za-z_]\w*)((?:\.\w+)*)\}")


@dataclass(frozen=True)
class Reference:
    """One `${axis.field}` within a stage's parameters.

    Attributes:
        path: where it stands, from the stage.
        axis: the axis named.
        fields: the fields named, outermost first.
        values: what it stands for, by label.
    """

    path: Path
    axis: Axis
    fields: tuple[str, ...]
    values: Mapping[Label, Any]


@dataclass(frozen=True)
class Template:
    """A stage's parameters before substitution.

    Attributes:
        plain: the parameters as written.
        references: the texts to be substituted.
    """

    plain: dict[str, Any]
    references: tuple[Reference, ...]
    _slots: dict[Label, Any] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        for index, reference in enumerate(self.references):
            slots = self._slots
            for part in reference.path[:-1]:
                slots = slots.setdefault(part, {})
            slots[reference.path[-1]] = index

    def fill(self, labels: Mapping[str, Label]) -> dict[str, Any]:
        """Substitute the values of one combination of labels, copying what changes."""
        values = [r.values[labels[r.axis.name]] for r in self.references]
        filled: dict[str, Any] = _fill(self.plain, self._slots, values)
        return filled

    def num_values(self) -> int:
        """Return the number of values in the parameters as written."""
        return _num_values(self.plain)

    def at(self, path: Path) -> Reference | None:
        """Return the reference that gives the value at a path, None if none does."""
        for reference in self.references:
            if path[: len(reference.path)] == reference.path:
                return reference
        return None

    def samples(self) -> Iterator[dict[str, Label]]:
        """Yield combinations that show every label once, see the function `samples`."""
        return samples(self.references)

    def combinations(self) -> Iterator[dict[str, Label]]:
        """Yield all combinations, but of a count those with its first label alone."""
        axes = {r.axis.name: r.axis for r in self.references}.values()
        labels = [
            axis.labels[:1] if axis.form == "count" else axis.labels for axis in axes
        ]
        for chosen in product(*labels):
            yield dict(zip((axis.name for axis in axes), chosen, strict=True))


def samples(references: Iterable[Reference]) -> Iterator[dict[str, Label]]:
    """Yield combinations that show every label once, not all combinations."""
    # Of a count only both ends are yielded: it can only break bounds.
    axes = {r.axis.name: r.axis for r in references}
    first = {name: axis.labels[0] for name, axis in axes.items()}
    yield first
    for name, axis in axes.items():
        rest = axis.labels[-1:] if axis.form == "count" else axis.labels[1:]
        for label in rest:
            yield {**first, name: label}


def _num_values(plain: Any) -> int:
    items = plain.values() if isinstance(plain, dict) else plain
    inner = items if isinstance(plain, dict | list) else ()
    return 1 + sum(map(_num_values, inner))


def _fill(plain: Any, slots: dict[Label, Any], values: list[Any]) -> Any:
    filled = plain.copy()
    for key, slot in slots.items():
        if type(slot) is int:
            filled[key] = values[slot]
        else:
            filled[key] = _fill(filled[key], slot, values)
    return filled


def compile_template(
    document: Document,
    stage: str,
    names: list[str],
    axes: Mapping[str, Axis],
    verbatim: Collection[str] = (),
) -> Template:
    """Compile the parameters `names` of a stage; of `verbatim` ones as written."""
    # All others have the values that enter keys, so that equal keys mean equal calls.
    entry = document.mapping(("stages", stage))
    plain = {name: entry[name].plain() for name in names}
    references = [
        replace(reference, values=axis.by_label(fields, verbatim=True))
        if name in verbatim
        else reference
        for name in names
        for reference in _references(document, stage, (name,), entry[name], axes)
        for axis, fields in [(reference.axis, reference.fields)]
    ]
    return Template(
        {k: v if k in verbatim else normalised(v) for k, v in plain.items()},
        tuple(references),
    )


def _references(
    document: Document,
    stage: str,
    path: Path,
    item: SourceNode,
    axes: Mapping[str, Axis],
) -> Iterator[Reference]:
    for key, child in item.children():
        yield from _references(document, stage, (*path, key), child, axes)
    if isinstance(item.value, str) and "${" in item.value:
        yield _reference(document, stage, path, item.value, axes)


def _reference(
    document: Document, stage: str, path: Path, text: str, axes: Mapping[str, Axis]
) -> Reference:
    full = ("stages", stage, *path)
    match = REFERENCE.fullmatch(text)
    if match is None:
        message = (
            f"expected ${{axis}} or ${{axis.field}} and nothing else, got {text!r}"
        )
        hint = "Put the whole value into a mapping axis and name its field."
        raise document.error(full, message, hint)
    name, fields = match[1], tuple(match[2].split(".")[1:])
    if name not in axes:
        message = f"expected an axis of the study, got {short_yaml(text)}"
        hint = nearest(name, axes) or "The study has no axes."
        raise document.error(full, message, hint)
    axis = axes[name]
    values = axis.by_label(fields)
    if not values:
        raise _no_field(document, full, text, axis, axis.lacking(fields))
    return Reference(path, axis, fields, values)


def _no_field(
    document: Document, full: Path, text: str, axis: Axis, lacking: list[Label]
) -> StudyError:
    written = text[2:-1].partition(".")[2]
    if len(lacking) < len(axis.labels):
        message = f"expected the field '{written}', got none"
        hint = f"{'.'.join(map(str, full))} takes it."
        return document.error(axis.path(lacking[0]), message, hint)
    message = f"expected a field of axis '{axis.name}', got {short_yaml(text)}"
    known = {str(k) for v in axis.values if isinstance(v, dict) for k in v}
    hint = nearest(written.partition(".")[0], known)
    return document.error(full, message, hint or "Its values are no mappings.")
