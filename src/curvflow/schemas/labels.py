"""Whether labels that parameters hold are those of an axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from curvflow.schemas.axes import Axis, nearest_label
from curvflow.schemas.nodes import Label
from curvflow.schemas.stage import Stage
from curvflow.schemas.written import Path, shown


def check_labels(stage: Stage, axes: Mapping[str, Axis]) -> None:
    """Check labels named against the axes, and axes whose labels must be numbers.

    Args:
        stage: its inputs resolved.
        axes: the study's.

    Raises:
        StudyError: an axis has no such label, has it alone where others are compared
            with it, or has labels that are no numbers.
    """
    if not (stage.kind.labels or stage.kind.numeric):
        return
    for labels in stage.template.samples():
        params = stage.params(labels)
        for name, named_by in stage.kind.labels.items():
            for path, axis, label in _labelled(params, name, named_by):
                if axis in axes:  # epochs show when the nodes are laid out
                    _check_label(stage, axes[axis], path, label, labels)
            if name != named_by:
                _check_several(stage, axes, named_by, labels)
        for name in stage.kind.numeric:
            _check_numeric(stage, axes, name, labels)


def _labelled(
    params: Any, name: str, named_by: str
) -> Iterator[tuple[Path, str, Label]]:
    if name != named_by:
        yield (name,), getattr(params, named_by), getattr(params, name)
        return
    for axis, given in getattr(params, name).items():
        if isinstance(given, tuple):
            yield from (((name, axis, n), axis, one) for n, one in enumerate(given))
        else:
            yield (name, axis), axis, given


def _check_label(
    stage: Stage, axis: Axis, path: Path, label: Label, labels: Mapping[str, Label]
) -> None:
    if label not in axis.labels:
        message = f"expected a label of axis '{axis.name}', got {shown(label)}"
        hint = nearest_label(label, axis.labels)
        raise stage.complain(path, message, hint, labels=labels)


def _check_several(
    stage: Stage, axes: Mapping[str, Axis], name: str, labels: Mapping[str, Label]
) -> None:
    axis = getattr(stage.params(labels), name)
    if axis in axes and len(axes[axis].labels) < 2:
        message = f"expected an axis of two labels or more, got '{axis}' of one"
        hint = f"Give '{axis}' another, or remove the stage."
        raise stage.complain((name,), message, hint, labels=labels)


def _check_numeric(
    stage: Stage, axes: Mapping[str, Axis], name: str, labels: Mapping[str, Label]
) -> None:
    axis = getattr(stage.params(labels), name)
    if axis not in axes:
        return
    for label in axes[axis].labels:
        if isinstance(label, str | bool):
            message = (
                f"expected an axis whose labels are numbers, got '{axis}' with "
                f"{shown(label)}"
            )
            hint = "List the numbers, or name another."
            raise stage.complain((name,), message, hint, labels=labels)
