"""Results of stages set side by side: a row per label, a column per number."""

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
from curvflow.tasks.statistics.cells import Place, named
from curvflow.tasks.statistics.measurements import Measured, chosen, matrix


@dataclass(frozen=True)
class Sheet:
    """R rows and C columns.

    Attributes:
        axes: of the rows.
        places: labels of each row.
        columns: name of each column.
        units: of each column.
        values: shape (R, C), NaN unless ok.
        cells: ok, diverged, nonfinite or missing, shape (R, C).
    """

    axes: tuple[str, ...]
    places: Sequence[Place]
    columns: Sequence[str]
    units: Sequence[str]
    values: Array
    cells: Array

    def at(self, kept: Sequence[int]) -> Sheet:
        """Return the rows of some numbers."""
        rows = np.array(kept, dtype=np.intp)
        places = [self.places[row] for row in kept]
        return replace(
            self, places=places, values=self.values[rows], cells=self.cells[rows]
        )

    def arrays(self) -> dict[str, Array]:
        """Return the variables of `aggregate.join`."""
        return {
            "row": np.array([named(self.axes, place) for place in self.places], str),
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
            said = [
                repr(float(value)) if cell == "ok" else str(cell)
                for value, cell in zip(values, cells, strict=True)
            ]
            writer.writerow([*place, *said])
        return text.getvalue()


def side_by_side(nodes: Sequence[NodeData], params: SideBySide) -> Sheet:
    """Set numbers of stages side by side.

    Args:
        nodes: results of one or several stages.
        params: axes of the rows, and which variables.

    Returns:
        The sheet; a cell without a node, or whose node lacks the number, is missing.

    Raises:
        InputError: no stage has all axes of the rows, or a name is no number's.
    """
    places = _places(nodes, params.rows)
    of = chosen(nodes, params.quantities)
    several = Counter(one.variable.name for one in of)
    blocks = [_block(one, params.rows, places, nodes) for one in of]
    names = [
        f"{one.stage}.{name}" if several[one.variable.name] > 1 else name
        for one, (own, _, _) in zip(of, blocks, strict=True)
        for name in own
    ]
    units = [
        one.variable.units
        for one, (own, _, _) in zip(of, blocks, strict=True)
        for _ in own
    ]
    values = np.concatenate([values for _, values, _ in blocks], axis=1)
    cells = np.concatenate([cells for _, _, cells in blocks], axis=1)
    return Sheet(tuple(params.rows), places, names, units, values, cells)


def _places(nodes: Sequence[NodeData], axes: Sequence[str]) -> list[Place]:
    whole = [node for node in nodes if all(axis in node.coords for axis in axes)]
    if not whole:
        stages = ", ".join(dict.fromkeys(node.stage for node in nodes))
        raise InputError(
            f"rows: expected a stage that has all of {', '.join(axes)}, got {stages}, "
            "none of which does. Leave an axis out, or add such a stage."
        )
    return list(dict.fromkeys(tuple(n.coords[axis] for axis in axes) for n in whole))


def _block(
    one: Measured,
    axes: Sequence[str],
    places: Sequence[Place],
    nodes: Sequence[NodeData],
) -> tuple[list[str], Array, Array]:
    found = matrix(one)
    row_of = {id(node): row for row, node in enumerate(one.ok)}
    own = [axis for axis in axes if axis in one.nodes[0].coords]
    # Also those without the variable, which not every node need have.
    at = {
        tuple(node.coords[axis] for axis in own): node
        for node in nodes
        if node.stage == one.stage
    }
    values = np.full((len(places), len(found.names)), np.nan)
    cells = np.full(values.shape, "missing", dtype="<U9")
    for number, place in enumerate(places):
        labels: dict[str, Label] = dict(zip(axes, place, strict=True))
        node = at.get(tuple(labels[axis] for axis in own))
        if node is None:
            continue
        if node.status == "diverged":
            cells[number] = "diverged"
        elif (row := row_of.get(id(node))) is not None:
            finite = np.isfinite(found.values[row])
            values[number] = np.where(finite, found.values[row], np.nan)
            said = np.where(finite, "ok", "nonfinite")
            cells[number] = np.where(found.present[row], said, "missing")
    return list(found.names), values, cells
