"""One number of each node, laid out by the labels of axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from curvflow.errors import InputError, nearest
from curvflow.schemas.nodes import Array, Label, NodeData
from curvflow.tasks.statistics.measurements import Measured, is_unconverged

Place = tuple[Label, ...]
Status = Literal["ok", "diverged", "nonfinite"]


@dataclass(frozen=True)
class Cell:
    """What one node has to say.

    Attributes:
        value: finite, or NaN.
        status: why it is NaN.
        is_doubtful: whether the node says that its value is not converged.
    """

    value: float
    status: Status
    is_doubtful: bool = False


Cells = dict[Place, dict[Place, Cell]]


def cells(
    one: Measured,
    axes: Sequence[str],
    over: Sequence[str],
    value: Callable[[NodeData], float] | None = None,
) -> Cells:
    """Lay the nodes of a variable out by two sets of axes.

    Args:
        one: the variable.
        axes: the first set.
        over: the second, such as repetitions.
        value: from a node that did not diverge to its number; None takes the variable,
            which must be a single one.

    Returns:
        Place in `axes` to place in `over` to cell, in the order of the nodes.

    Raises:
        InputError: the variable has dimensions of its own, or its stage lacks an axis.
    """
    if value is None and one.variable.dims:
        raise InputError(
            f"{one.variable.name}: expected a single number per node, got it with "
            f"{', '.join(one.variable.dims)}. Choose another variable."
        )
    for axis in (*axes, *over):
        if axis not in one.nodes[0].coords:
            raise InputError(
                f"{one.variable.name}: expected an axis of {one.stage}, got '{axis}'. "
                f"{nearest(axis, one.nodes[0].coords) or 'It has none.'}"
            )
    read = value or (lambda node: float(node[one.variable.name]))
    found: Cells = {}
    for node in one.nodes:
        row = found.setdefault(place(node, axes), {})
        row[place(node, over)] = _cell(node, one, read)
    return found


def place(node: NodeData, axes: Sequence[str]) -> Place:
    """Return a node's labels of some axes."""
    return tuple(node.coords[axis] for axis in axes)


def named(axes: Sequence[str], labels: Place) -> str:
    """Return labels with their axes, such as `rule=sgd, lr=0.1`."""
    return ", ".join(f"{a}={label}" for a, label in zip(axes, labels, strict=True))


def finite(row: Mapping[Place, Cell]) -> Array:
    """Return the values that are there, sorted: no bit depends on their order."""
    return np.sort([cell.value for cell in row.values() if cell.status == "ok"])


def left_out(row: Mapping[Place, Cell], expected: int) -> dict[str, int]:
    """Count what is no value.

    Args:
        row: the cells there are.
        expected: how many there should be.

    Returns:
        `diverged`, `nonfinite` and `missing`.
    """
    statuses = [cell.status for cell in row.values()]
    return {
        "diverged": statuses.count("diverged"),
        "nonfinite": statuses.count("nonfinite"),
        "missing": expected - len(row),
    }


def num_unconverged(row: Mapping[Place, Cell]) -> int:
    """Count the cells whose nodes say that they are not converged."""
    return sum(cell.is_doubtful for cell in row.values())


def _cell(node: NodeData, one: Measured, read: Callable[[NodeData], float]) -> Cell:
    if node.status == "diverged":
        return Cell(np.nan, "diverged")
    value, is_doubtful = read(node), is_unconverged(node, one.variable)
    if np.isfinite(value):
        return Cell(value, "ok", is_doubtful)
    return Cell(np.nan, "nonfinite", is_doubtful)
