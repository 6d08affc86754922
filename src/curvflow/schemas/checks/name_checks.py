"""Checks that names and labels in parameters exist and are single numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from curvflow.errors import nearest
from curvflow.schemas.kind import Misnomer, Taken
from curvflow.schemas.nodes import Label
from curvflow.schemas.study.axes import Axis, nearest_label
from curvflow.schemas.study.stage import Stage
from curvflow.schemas.study.yaml_source import Path, shown


def check_names(stage: Stage, producers: Sequence[Stage]) -> None:
    """Check names of stages and variables in parameters against the inputs."""
    if stage.kind.misnamed is None:
        return
    kinds = {producer.name: producer.kind for producer in producers}
    taken = {
        name: {stage_name: kinds[stage_name] for stage_name in stages}
        for name, stages in stage.inputs.items()
    }
    for labels in stage.template.samples():
        for path, message, hint in stage.kind.misnamed(stage.params(labels), taken):
            raise stage.error(path, message, hint, labels=labels)


def check_labels(stage: Stage, axes: Mapping[str, Axis]) -> None:
    """Check labels in parameters against the axes, and axes for enough labels."""
    kind = stage.kind
    if not (kind.labels or kind.numeric or kind.several or kind.parts):
        return
    for labels in stage.template.samples():
        params = stage.params(labels)
        for name, named_by in kind.labels.items():
            for path, axis, label in _labelled(params, name, named_by):
                _check_label(stage, axes.get(axis), path, label, labels)
        for name in kind.several:
            _check_several(stage, axes, name, labels)
        for name, named_by in kind.parts.items():
            _check_parts(stage, axes, name, getattr(params, named_by), labels)
        for name in kind.numeric:
            _check_numeric(stage, axes, name, labels)


def _labelled(
    params: Any, name: str, named_by: str
) -> Iterator[tuple[Path, str, Label]]:
    if name != named_by:
        yield (name,), getattr(params, named_by), getattr(params, name)
        return
    for axis, given in getattr(params, name).items():
        if isinstance(given, tuple):
            yield from (((name, axis, n), axis, label) for n, label in enumerate(given))
        else:
            yield (name, axis), axis, given


def _check_label(
    stage: Stage,
    axis: Axis | None,
    path: Path,
    label: Label,
    labels: Mapping[str, Label],
) -> None:
    # Epochs show when the nodes are laid out.
    if axis is not None and label not in axis.labels:
        message = f"expected a label of axis '{axis.name}', got {shown(label)}"
        hint = nearest_label(label, axis.labels)
        raise stage.error(path, message, hint, labels=labels)


def _check_several(
    stage: Stage, axes: Mapping[str, Axis], name: str, labels: Mapping[str, Label]
) -> None:
    axis = getattr(stage.params(labels), name)
    if axis in axes and len(axes[axis].labels) < 2:
        message = f"expected an axis of two labels or more, got '{axis}' of one"
        hint = f"Give '{axis}' another, or remove the stage."
        raise stage.error((name,), message, hint, labels=labels)


def _check_parts(
    stage: Stage,
    axes: Mapping[str, Axis],
    name: str,
    dealt: Sequence[str],
    labels: Mapping[str, Label],
) -> None:
    parts = getattr(stage.params(labels), name)
    if parts is None or not all(axis in axes for axis in dealt):
        return
    most = math.prod(len(axes[axis].labels) for axis in dealt)
    if parts > most:
        message = f"expected at most {most}, the labels of {', '.join(dealt)}"
        hint = "Lower it, or add labels."
        raise stage.error((name,), f"{message}, got {parts}", hint, labels=labels)


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
            raise stage.error((name,), message, hint, labels=labels)


def not_single(
    field: str,
    names: Sequence[str],
    taken: Taken,
    *,
    along: Collection[str | None] = (),
) -> Iterator[Misnomer]:
    """Yield messages for variables that are no single number of one stage."""
    for name in names:
        having = {
            stage: variable
            for stage, kind in taken["of"].items()
            if (variable := kind.output(name)) is not None
        }
        dims = [d for v in having.values() for d in v.dims if d not in along]
        if dims:
            singles = {
                variable.name
                for kind in taken["of"].values()
                for variable in kind.outputs
                if not {*variable.dims} - {*along} and variable.dtype != "str"
            }
            message = (
                f"expected a single number per node, got '{name}' with "
                f"{', '.join(dict.fromkeys(dims))}"
            )
            yield (field,), message, nearest(name, singles)
        elif len(having) > 1:
            message = (
                f"expected a variable of one stage, got '{name}' of "
                f"{' and '.join(having)}"
            )
            yield (field,), message, "Name only one of them in `of`."
