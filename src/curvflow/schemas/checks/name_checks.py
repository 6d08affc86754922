"""Checks that names and labels in parameters exist and are single numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from curvflow.errors import nearest
from curvflow.schemas.kind import Axes, ParamProblem, Taken
from curvflow.schemas.nodes import Label
from curvflow.schemas.study.axes import Axis, nearest_label
from curvflow.schemas.study.stage import Stage
from curvflow.schemas.study.yaml_source import short_yaml


def check_names(stage: Stage, producers: Sequence[Stage]) -> None:
    """Check names of stages and variables in parameters against the inputs."""
    if stage.kind.check_names is None:
        return
    kinds = {producer.name: producer.kind for producer in producers}
    taken = {
        name: {stage_name: kinds[stage_name] for stage_name in stages}
        for name, stages in stage.inputs.items()
    }
    for labels in stage.template.samples():
        for path, message, hint in stage.kind.check_names(stage.params(labels), taken):
            raise stage.error(path, message, hint, labels=labels)


def check_axes(stage: Stage, axes: Mapping[str, Axis]) -> None:
    """Check labels in parameters against the axes, and axes for their labels."""
    check = stage.kind.check_axes
    if check is None:
        return
    by_name = {name: axis.labels for name, axis in axes.items()}
    for labels in stage.template.samples():
        for path, message, hint in check(stage.params(labels), by_name):
            raise stage.error(path, message, hint, labels=labels)


def unknown_label(
    path: tuple[str | int, ...], axis: str, label: Label, axes: Axes
) -> Iterator[ParamProblem]:
    """Yield that an axis has no such label; labels of epochs show in the nodes."""
    if axis in axes and label not in axes[axis]:
        message = f"expected a label of axis '{axis}', got {short_yaml(label)}"
        yield path, message, nearest_label(label, axes[axis])


def single_label(params: Any, name: str, axes: Axes) -> Iterator[ParamProblem]:
    """Yield that the axis named by a parameter has one label alone."""
    axis = getattr(params, name)
    if axis in axes and len(axes[axis]) < 2:
        message = f"expected an axis of two labels or more, got '{axis}' of one"
        yield (name,), message, f"Give '{axis}' another, or remove the stage."


def text_labels(params: Any, name: str, axes: Axes) -> Iterator[ParamProblem]:
    """Yield that the axis named by a parameter has labels that are no numbers."""
    axis = getattr(params, name)
    for label in axes.get(axis, ()):
        if isinstance(label, str | bool):
            message = (
                f"expected an axis whose labels are numbers, got '{axis}' with "
                f"{short_yaml(label)}"
            )
            yield (name,), message, "List the numbers, or name another."


def too_many_parts(
    params: Any, name: str, dealt: Sequence[str], axes: Axes
) -> Iterator[ParamProblem]:
    """Yield that the labels of some axes cannot be dealt into so many parts."""
    parts = getattr(params, name)
    if parts is None or not all(axis in axes for axis in dealt):
        return
    most = math.prod(len(axes[axis]) for axis in dealt)
    if parts > most:
        message = f"expected at most {most}, the labels of {', '.join(dealt)}"
        yield (name,), f"{message}, got {parts}", "Lower it, or add labels."


def not_single(
    field: str,
    names: Sequence[str],
    taken: Taken,
    *,
    along: Collection[str | None] = (),
    roles: str = "",
) -> Iterator[ParamProblem]:
    """Yield messages for variables that are no single number of one stage.

    Args:
        field: the parameter that names them.
        names: names of the variables.
        taken: kinds of the inputs.
        along: dimensions that they may have.
        roles: parameters that can name one dimension more, as a message has them.

    Yields:
        The field, the message, and a remedy.
    """
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
            remedy = f"Name {dims[0]} by {roles}." if roles else nearest(name, singles)
            yield (field,), message, remedy
        elif len(having) > 1:
            message = (
                f"expected a variable of one stage, got '{name}' of "
                f"{' and '.join(having)}"
            )
            yield (field,), message, "Name only one of them in `of`."


def unknown_selection(
    selection: Mapping[str, object], names: Sequence[str], taken: Taken
) -> Iterator[ParamProblem]:
    """Yield messages for selected dimensions that a variable does not have."""
    variables = [
        variable
        for name in names
        for kind in taken["of"].values()
        if (variable := kind.output(name)) is not None and "..." not in variable.dims
    ]
    for dim in selection:
        for variable in variables:
            if dim not in variable.dims:
                message = f"expected a dimension of {variable.name}, got '{dim}'"
                known = nearest(dim, variable.dims) or "It has none."
                yield ("select", dim), message, known
