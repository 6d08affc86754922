"""Joined tables of several stages: a row per labels, a column per number."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.tables import SideBySide
from curvflow.schemas.nodes import Array, Label, NodeData
from curvflow.tasks.statistics.cells import Labels, labels_text
from curvflow.tasks.statistics.measurements import (
    Measurement,
    element_matrix,
    select_measurements,
)


@dataclass(frozen=True)
class JoinedTable:
    """R rows and C columns.

    Attributes:
        axes: axes of the rows.
        places: labels of each row.
        columns: name of each column.
        units: units of each column.
        values: shape (R, C), NaN unless ok.
        cells: ok, diverged, nonfinite or missing, shape (R, C).
    """

    axes: tuple[str, ...]
    places: Sequence[Labels]
    columns: Sequence[str]
    units: Sequence[str]
    values: Array
    cells: Array

    def at(self, row_numbers: Sequence[int]) -> JoinedTable:
        """Return the table of the given rows."""
        rows = np.array(row_numbers, dtype=np.intp)
        places = [self.places[row] for row in row_numbers]
        return replace(
            self, places=places, values=self.values[rows], cells=self.cells[rows]
        )

    def arrays(self) -> dict[str, Array]:
        """Return the variables of `aggregate.join`."""
        return {
            "row": np.array(
                [labels_text(self.axes, place) for place in self.places], str
            ),
            "column": np.array(self.columns, str),
            "column_units": np.array(self.units, str),
            "value": self.values,
            "cell": self.cells,
            "wide": np.frombuffer(self._csv().encode(), np.uint8).copy(),
        }

    def _csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        heads = [
            name if units == "1" else f"{name} ({units})"
            for name, units in zip(self.columns, self.units, strict=True)
        ]
        writer.writerow([*self.axes, *heads])
        for place, values, cells in zip(
            self.places, self.values, self.cells, strict=True
        ):
            texts = [
                repr(float(value)) if cell == "ok" else str(cell)
                for value, cell in zip(values, cells, strict=True)
            ]
            writer.writerow([*place, *texts])
        return text.getvalue()


def join_table(nodes: Sequence[NodeData], params: SideBySide) -> JoinedTable:
    """Join the numbers of stages into one table.

    Args:
        nodes: results of one or several stages.
        params: axes of the rows and names of the variables.

    Returns:
        The table; a cell without a node, or whose node lacks the number, is missing.

    Raises:
        InputError: no stage has all axes of the rows, or a name is not that of a
            number.
    """
    places = _places(nodes, params.rows)
    measurements = select_measurements(nodes, params.quantities)
    stage_counts = Counter(m.variable.name for m in measurements)
    blocks = [_block(m, params.rows, places, nodes) for m in measurements]
    names = [
        f"{m.stage}.{name}" if stage_counts[m.variable.name] > 1 else name
        for m, (element_names, _, _) in zip(measurements, blocks, strict=True)
        for name in element_names
    ]
    units = [
        m.variable.units
        for m, (element_names, _, _) in zip(measurements, blocks, strict=True)
        for _ in element_names
    ]
    values = np.concatenate([values for _, values, _ in blocks], axis=1)
    cells = np.concatenate([cells for _, _, cells in blocks], axis=1)
    return JoinedTable(tuple(params.rows), places, names, units, values, cells)


def _places(nodes: Sequence[NodeData], axes: Sequence[str]) -> list[Labels]:
    whole = [node for node in nodes if all(axis in node.coords for axis in axes)]
    if not whole:
        stages = ", ".join(dict.fromkeys(node.stage for node in nodes))
        raise InputError(
            f"rows: expected a stage with all of the axes {', '.join(axes)}, got "
            f"{stages}. Leave an axis out, or add such a stage."
        )
    return list(dict.fromkeys(tuple(n.coords[axis] for axis in axes) for n in whole))


def _block(
    measurement: Measurement,
    axes: Sequence[str],
    places: Sequence[Labels],
    nodes: Sequence[NodeData],
) -> tuple[list[str], Array, Array]:
    elements = element_matrix(measurement)
    row_of = {id(node): row for row, node in enumerate(measurement.ok)}
    own_axes = [axis for axis in axes if axis in measurement.nodes[0].coords]
    # Nodes without an optional variable count too.
    node_at = {
        tuple(node.coords[axis] for axis in own_axes): node
        for node in nodes
        if node.stage == measurement.stage
    }
    values = np.full((len(places), len(elements.names)), np.nan)
    cells = np.full(values.shape, "missing", dtype="<U9")
    for number, place in enumerate(places):
        labels: dict[str, Label] = dict(zip(axes, place, strict=True))
        node = node_at.get(tuple(labels[axis] for axis in own_axes))
        if node is None:
            continue
        if node.status == "diverged":
            cells[number] = "diverged"
        elif (row := row_of.get(id(node))) is not None:
            finite = np.isfinite(elements.values[row])
            values[number] = np.where(finite, elements.values[row], np.nan)
            texts = np.where(finite, "ok", "nonfinite")
            cells[number] = np.where(elements.present[row], texts, "missing")
    return list(elements.names), values, cells
