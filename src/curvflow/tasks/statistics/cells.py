"""Cells: one number of each node, in a table by the labels of axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from curvflow.errors import InputError, nearest
from curvflow.schemas.nodes import Array, Label, NodeData
from curvflow.tasks.statistics.measurements import Measurement, is_unconverged

Labels = tuple[Label, ...]
Status = Literal["ok", "diverged", "nonfinite"]


@dataclass(frozen=True)
class Cell:
    """The number of one node.

    Attributes:
        value: finite, or NaN.
        status: `ok`, or the reason for NaN.
        is_unconverged: the node reports that its value is not converged.
    """

    value: float
    status: Status
    is_unconverged: bool = False


Cells = dict[Labels, dict[Labels, Cell]]


def cells(
    measurement: Measurement,
    axes: Sequence[str],
    over: Sequence[str],
    value: Callable[[NodeData], float] | None = None,
) -> Cells:
    """Arrange the nodes of a variable by two sets of axes.

    Args:
        measurement: the variable and its nodes.
        axes: the first set of axes.
        over: the second set, such as repetitions.
        value: from a node that did not diverge to its number; None takes the variable,
            which must be a scalar.

    Returns:
        Labels of `axes` to labels of `over` to cell, in the order of the nodes.

    Raises:
        InputError: the variable has dimensions, or its stage lacks an axis.
    """
    if value is None and measurement.variable.dims:
        raise InputError(
            f"{measurement.variable.name}: expected a single number per node, got it "
            "with "
            f"{', '.join(measurement.variable.dims)}. Choose another variable."
        )
    for axis in (*axes, *over):
        if axis not in measurement.nodes[0].coords:
            raise InputError(
                f"{measurement.variable.name}: expected an axis of "
                f"{measurement.stage}, got '{axis}'. "
                f"{nearest(axis, measurement.nodes[0].coords) or 'It has none.'}"
            )
    read = value or (lambda node: float(node[measurement.variable.name]))
    table: Cells = {}
    for node in measurement.nodes:
        row = table.setdefault(labels_of(node, axes), {})
        row[labels_of(node, over)] = _cell_of(node, measurement, read)
    return table


def labels_of(node: NodeData, axes: Sequence[str]) -> Labels:
    """Return a node's labels along axes."""
    return tuple(node.coords[axis] for axis in axes)


def labels_text(axes: Sequence[str], labels: Labels) -> str:
    """Return labels with their axes, such as `rule=sgd, lr=0.1`."""
    return ", ".join(f"{a}={label}" for a, label in zip(axes, labels, strict=True))


def finite_values(row: Mapping[Labels, Cell]) -> Array:
    """Return the finite values, sorted, so that no bit depends on their order."""
    return np.sort([cell.value for cell in row.values() if cell.status == "ok"])


def exclusion_counts(row: Mapping[Labels, Cell], expected: int) -> dict[str, int]:
    """Count the cells excluded from statistics by reason.

    Args:
        row: the cells.
        expected: number of cells of a complete row.

    Returns:
        `diverged`, `nonfinite` and `missing`.
    """
    statuses = [cell.status for cell in row.values()]
    return {
        "diverged": statuses.count("diverged"),
        "nonfinite": statuses.count("nonfinite"),
        "missing": expected - len(row),
    }


def num_unconverged(row: Mapping[Labels, Cell]) -> int:
    """Count the cells whose nodes report that they are not converged."""
    return sum(cell.is_unconverged for cell in row.values())


def _cell_of(
    node: NodeData, measurement: Measurement, read: Callable[[NodeData], float]
) -> Cell:
    if node.status == "diverged":
        return Cell(np.nan, "diverged")
    value, unconverged = read(node), is_unconverged(node, measurement.variable)
    if np.isfinite(value):
        return Cell(value, "ok", unconverged)
    return Cell(np.nan, "nonfinite", unconverged)
