"""Measured variables grouped by the labels that a figure distinguishes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from curvflow.errors import InputError, nearest
from curvflow.schemas.nodes import Array, Label, NodeData
from curvflow.schemas.words import counted
from curvflow.tasks.statistics.measurements import Measured, spread


@dataclass
class Group:
    """The nodes of one label.

    Attributes:
        label: of the axis or dimension compared; empty if nothing is compared.
        nodes: how many there are.
        diverged: how many of them diverged.
        rows: per node that did not, its x and the values there.
    """

    label: Label
    nodes: int = 0
    diverged: int = 0
    rows: list[tuple[list[Label], Array]] = field(default_factory=list)

    def matrix(self, xs: Sequence[Label]) -> Array:
        """Return the values at given x, shape (rows, X), NaN where a row has none."""
        column = {x: number for number, x in enumerate(xs)}
        values_NX = np.full((len(self.rows), len(xs)), np.nan)
        for row, (own, values) in zip(values_NX, self.rows, strict=True):
            row[[column[x] for x in own]] = values
        return values_NX

    def nonfinite(self) -> int:
        """Count values that are NaN or infinite."""
        return sum(int((~np.isfinite(values)).sum()) for _, values in self.rows)


def groups(one: Measured, *, label: str | None, x: str | None = None) -> list[Group]:
    """Sort the nodes of a variable by label.

    Args:
        one: the variable.
        label: axis or dimension whose labels are compared.
        x: axis or dimension that the values run along.

    Returns:
        A group per label, in the order of the study.

    Raises:
        InputError: label or x is neither axis nor dimension of the variable, or the
            variable has a dimension that is neither.
    """
    _check(one, label=label, x=x)
    found: dict[Label, Group] = {}
    for node in one.nodes:
        if label is None or label in node.coords:
            key = "" if label is None else node.coords[label]
            group = found.setdefault(key, Group(key))
            group.nodes += 1
            group.diverged += node.status == "diverged"
        if node.status == "ok":
            (labels, xs), values_LX = spread(node, one.variable, (label, x))
            for key, values in zip(labels, values_LX, strict=True):
                found.setdefault(key, Group(key)).rows.append((xs, values))
    return list(found.values()) or [Group("")]


def run_x(one: Measured, x: str, of: Sequence[Group]) -> list[Label]:
    """List the x at which any group has values, numbers ascending.

    Args:
        one: the variable.
        x: axis or dimension.
        of: the groups.

    Returns:
        At least one x; where everything diverged, those that were asked for.
    """
    seen = [v for group in of for own, _ in group.rows for v in own]
    seen = seen or [node.coords[x] for node in one.nodes if x in node.coords] or [0]
    xs = list(dict.fromkeys(seen))
    return sorted(xs, key=float) if are_numbers(xs) else xs


def are_numbers(labels: Sequence[Label]) -> bool:
    """Return whether labels are numbers, so that their distances mean something."""
    return all(isinstance(x, int | float) and not isinstance(x, bool) for x in labels)


def _check(one: Measured, **roles: str | None) -> None:
    name, dims = one.variable.name, one.variable.dims
    known = (*dims, *one.nodes[0].coords)
    for role, dim in roles.items():
        if dim is not None and dim not in known:
            raise InputError(
                f"{role}: expected a dimension of {name} of {one.stage}, got '{dim}'. "
                f"{nearest(dim, known) or 'It has none.'}"
            )
    if left := [dim for dim in dims if dim not in roles.values()]:
        parts = " or ".join(f"`{role}`" for role in roles)
        raise InputError(
            f"y: expected a variable without further dimensions, got {name} with "
            f"{', '.join(left)}. Name one as {parts}, or choose another variable."
        )


@dataclass
class Company(Group):
    """The nodes of one label.

    Attributes:
        title: the label with the axis that it is of, such as `probe, rule = sgd`.
        ok: those that did not diverge.
        gone: those that did.
    """

    title: str = ""
    ok: list[NodeData] = field(default_factory=list)
    gone: list[NodeData] = field(default_factory=list)


def companies(nodes: Sequence[NodeData], label: str | None) -> list[Company]:
    """Sort nodes by stage, if there are several, and by label.

    Args:
        nodes: results of one or several stages.
        label: axis whose labels are told apart.

    Returns:
        A company for each stage and label, in the order of the study.

    Raises:
        InputError: no stage has such an axis.
    """
    axes = {axis for node in nodes for axis in node.coords}
    if label is not None and label not in axes:
        raise InputError(
            f"label: expected an axis of {nodes[0].stage}, got '{label}'. "
            f"{nearest(label, axes) or 'It has none.'}"
        )
    names_stage = len({node.stage for node in nodes}) > 1
    found: dict[str, Company] = {}
    for node in nodes:
        parts = [node.stage] if names_stage else []
        # A stage may lack the axis that another has.
        own = "" if label is None else str(node.coords.get(label, ""))
        title = ", ".join([*parts, f"{label} = {own}"] if own else parts)
        name = ", ".join([*parts, own] if own else parts)
        company = found.setdefault(name, Company(name, title=title))
        company.nodes += 1
        company.diverged += node.status == "diverged"
        (company.ok if node.status == "ok" else company.gone).append(node)
    return list(found.values())


def whereabouts(nodes: Iterable[NodeData], label: str | None) -> str:
    """Say which nodes are drawn: all of some axes, at one label of others.

    Args:
        nodes: those drawn.
        label: the axis told apart.

    Returns:
        Such as `; all 3 of seed, at rule = sgd`, or nothing.
    """
    seen: dict[str, dict[Label, None]] = {}
    for node in nodes:
        for axis, value in node.coords.items():
            if axis != label:
                seen.setdefault(axis, {})[value] = None
    over = [f"{counted(len(v), axis)}" for axis, v in seen.items() if len(v) > 1]
    held = [f"{axis} = {next(iter(v))}" for axis, v in seen.items() if len(v) == 1]
    text = f"; all of {', '.join(over)}" if over else ""
    return text + (f", at {', '.join(held)}" if held else "")
