"""Nodes that a figure draws one by one, sorted by the label that tells them apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from curvflow.errors import InputError, nearest
from curvflow.schemas.counted import counted
from curvflow.schemas.nodes import Label, NodeData
from curvflow.tasks.comparison import Group


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
