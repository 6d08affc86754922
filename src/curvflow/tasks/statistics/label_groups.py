"""Label groups: the nodes or values of each label that a figure distinguishes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from curvflow.errors import InputError, nearest
from curvflow.schemas.kind import Variable
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.nodes import Array, Label, NodeData
from curvflow.schemas.words import counted
from curvflow.tasks.statistics.measurements import Measurement, dim_labels, values_along

MAX_SHOWN = 12  # labels of a dimension that a message lists


@dataclass
class ValueGroup:
    """The values of one label.

    Attributes:
        label: label of the distinguished axis or dimension; empty without one.
        nodes: number of nodes.
        diverged: number of diverged nodes.
        rows: x and values of each node that did not diverge.
    """

    label: Label
    nodes: int = 0
    diverged: int = 0
    rows: list[tuple[list[Label], Array]] = field(default_factory=list)

    def matrix(self, xs: Sequence[Label]) -> Array:
        """Return the values at given x, shape (rows, X), NaN where a row lacks an x."""
        column = {x: number for number, x in enumerate(xs)}
        values_NX = np.full((len(self.rows), len(xs)), np.nan)
        for row, (row_xs, values) in zip(values_NX, self.rows, strict=True):
            row[[column[x] for x in row_xs]] = values
        return values_NX

    def nonfinite(self) -> int:
        """Count values that are NaN or infinite."""
        return sum(int((~np.isfinite(values)).sum()) for _, values in self.rows)


def selected(measurement: Measurement, labels: Mapping[str, Label]) -> Measurement:
    """Return a variable at one label of some of its dimensions.

    Args:
        measurement: the variable and its nodes.
        labels: dimension to label; those that the variable lacks do not count.

    Returns:
        The variable without these dimensions, which are coordinates of its nodes.

    Raises:
        InputError: a node has no such label.
    """
    variable = measurement.variable
    inside = {dim: label for dim, label in labels.items() if dim in variable.dims}
    if not inside:
        return measurement
    nodes = [_at_labels(node, variable, inside) for node in measurement.nodes]
    dims = tuple(dim for dim in variable.dims if dim not in inside)
    return Measurement(replace(variable, dims=dims), nodes)


def _at_labels(
    node: NodeData, variable: Variable, labels: Mapping[str, Label]
) -> NodeData:
    """Return a node whose variable is that at some labels, and its verdict too."""
    coords = {**node.coords, **labels}
    if node.status != "ok":
        return replace(node, coords=coords)
    sizes = dict(zip(variable.dims, node[variable.name].shape, strict=True))
    places = {
        dim: _place(dim_labels(node, dim, sizes[dim]), dim, label)
        for dim, label in labels.items()
    }
    arrays = {
        output.name: node[output.name][
            tuple(places.get(dim, slice(None)) for dim in output.dims)
        ]
        for output in find_kind(node.kind).outputs
        if output.name in node and output.name in (variable.name, variable.judged_by)
    }
    return replace(node, coords=coords, arrays={**node.arrays, **arrays})


def _place(known: Sequence[Label], dim: str, label: Label) -> int:
    if label not in known:
        shown = ", ".join(map(str, known[:MAX_SHOWN]))
        more = ", …" if len(known) > MAX_SHOWN else ""
        raise InputError(
            f"select: expected a label of {dim}, {shown}{more}, got {label}. Take one "
            "that all results have."
        )
    return known.index(label)


def value_groups(
    measurement: Measurement, *, label: str | None, x: str | None = None
) -> list[ValueGroup]:
    """Group the values of a variable by label.

    Args:
        measurement: the variable and its nodes.
        label: axis or dimension whose labels are distinguished.
        x: axis or dimension that the values run along.

    Returns:
        A group per label, in the order of the study.

    Raises:
        InputError: label or x is neither axis nor dimension of the variable, or the
            variable has a further dimension.
    """
    _check_dimensions(measurement, label=label, x=x)
    groups: dict[Label, ValueGroup] = {}
    for node in measurement.nodes:
        if label is None or label in node.coords:
            key = "" if label is None else node.coords[label]
            group = groups.setdefault(key, ValueGroup(key))
            group.nodes += 1
            group.diverged += node.status == "diverged"
        if node.status == "ok":
            (labels, xs), values_LX = values_along(
                node, measurement.variable, (label, x)
            )
            for key, values in zip(labels, values_LX, strict=True):
                groups.setdefault(key, ValueGroup(key)).rows.append((xs, values))
    return list(groups.values()) or [ValueGroup("")]


def x_labels(
    measurement: Measurement, x: str, groups: Sequence[ValueGroup]
) -> list[Label]:
    """List the x at which any group has values, numbers ascending.

    Args:
        measurement: the variable and its nodes.
        x: axis or dimension.
        groups: the label groups.

    Returns:
        At least one x; where all nodes diverged, the labels of the nodes.
    """
    seen = [v for group in groups for row_xs, _ in group.rows for v in row_xs]
    seen = (
        seen
        or [node.coords[x] for node in measurement.nodes if x in node.coords]
        or [0]
    )
    xs = list(dict.fromkeys(seen))
    return sorted(xs, key=float) if are_numbers(xs) else xs


def are_numbers(labels: Sequence[Label]) -> bool:
    """Return whether labels are numbers, so that their distances mean something."""
    return all(isinstance(x, int | float) and not isinstance(x, bool) for x in labels)


def _check_dimensions(measurement: Measurement, **roles: str | None) -> None:
    name, dims = measurement.variable.name, measurement.variable.dims
    known = (*dims, *measurement.nodes[0].coords)
    for role, dim in roles.items():
        if dim is not None and dim not in known:
            raise InputError(
                f"{role}: expected a dimension of {name} of {measurement.stage}, got "
                f"'{dim}'. "
                f"{nearest(dim, known) or 'It has none.'}"
            )
    if unused := [dim for dim in dims if dim not in roles.values()]:
        parts = " or ".join(f"`{role}`" for role in roles)
        raise InputError(
            f"y: expected a variable without further dimensions, got {name} with "
            f"{', '.join(unused)}. Name one as {parts}, or choose another variable."
        )


@dataclass
class NodeGroup(ValueGroup):
    """The nodes of one stage and label.

    Attributes:
        title: stage and label with its axis, such as `probe, rule = sgd`.
        ok: nodes that did not diverge.
        diverged_nodes: nodes that diverged.
    """

    title: str = ""
    ok: list[NodeData] = field(default_factory=list)
    diverged_nodes: list[NodeData] = field(default_factory=list)


def node_groups(nodes: Sequence[NodeData], label: str | None) -> list[NodeGroup]:
    """Group nodes by stage, if there are several, and by label.

    Args:
        nodes: results of one or several stages.
        label: axis whose labels are distinguished.

    Returns:
        A group for each stage and label, in the order of the study.

    Raises:
        InputError: no stage has this axis.
    """
    axes = {axis for node in nodes for axis in node.coords}
    if label is not None and label not in axes:
        raise InputError(
            f"label: expected an axis of {nodes[0].stage}, got '{label}'. "
            f"{nearest(label, axes) or 'It has none.'}"
        )
    names_stage = len({node.stage for node in nodes}) > 1
    groups: dict[str, NodeGroup] = {}
    for node in nodes:
        parts = [node.stage] if names_stage else []
        # A stage may lack the axis that another has.
        label_text = "" if label is None else str(node.coords.get(label, ""))
        title = ", ".join([*parts, f"{label} = {label_text}"] if label_text else parts)
        name = ", ".join([*parts, label_text] if label_text else parts)
        group = groups.setdefault(name, NodeGroup(name, title=title))
        group.nodes += 1
        group.diverged += node.status == "diverged"
        (group.ok if node.status == "ok" else group.diverged_nodes).append(node)
    return list(groups.values())


def selection_text(nodes: Iterable[NodeData], label: str | None) -> str:
    """Return the selection of drawn nodes as text: varying axes and fixed labels.

    Args:
        nodes: the drawn nodes.
        label: the distinguished axis, which is left out.

    Returns:
        Such as `; all 3 of seed, at rule = sgd`, or an empty text.
    """
    values_of_axis: dict[str, dict[Label, None]] = {}
    for node in nodes:
        for axis, value in node.coords.items():
            if axis != label:
                values_of_axis.setdefault(axis, {})[value] = None
    varying = [
        f"{counted(len(v), axis)}" for axis, v in values_of_axis.items() if len(v) > 1
    ]
    fixed = [
        f"{axis} = {next(iter(v))}" for axis, v in values_of_axis.items() if len(v) == 1
    ]
    text = f"; all of {', '.join(varying)}" if varying else ""
    return text + (f", at {', '.join(fixed)}" if fixed else "")
