"""Records as tables of text; each number also in full, with its origin."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from curvflow.flows.results.convergence_counts import VERDICT
from curvflow.flows.results.node_results import View
from curvflow.schemas.kind import Kind
from curvflow.schemas.records.tables import Column, columns_of

Read = tuple[int, Mapping[str, Any]]  # number of the origin, and the record

MOST_ROWS = 500  # of one table


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        text: as people read it.
        full: the same with all digits; empty if the text has them.
        look: `odd` for NaN and infinities, or the status of a node without a value.
    """

    text: str
    full: str = ""
    look: str = ""


@dataclass(frozen=True)
class Head:
    """The head of a column: name, units, description, and whether it holds numbers."""

    field: str
    units: str = ""
    about: str = ""
    is_number: bool = False


@dataclass(frozen=True)
class Row:
    """One row: the number of its origin, -1 if it has none, and its cells."""

    origin: int
    cells: Sequence[Cell]


@dataclass(frozen=True)
class Grid:
    """One table.

    Attributes:
        name: its title, also of its files.
        heads: one per column.
        rows: of equal length.
        same: columns with one value in all rows, shown once.
        more: number of rows not shown.
    """

    name: str
    heads: Sequence[Head]
    rows: Sequence[Row]
    same: Sequence[tuple[Head, Cell]] = ()
    more: int = 0


def grids(
    view: View, kind: Kind, read: Sequence[Read], units: Mapping[str, str]
) -> list[Grid]:
    """Lay out a stage's records, one table for each set of fields."""
    groups: dict[tuple[str, ...], list[int]] = {}
    bare: list[int] = []
    labels = {*view.dims, "status", "reason", VERDICT}
    for number, (_, record) in enumerate(read):
        fields = _fields(kind, record)
        if labels.issuperset(fields):
            bare.append(number)
        else:
            groups.setdefault(fields, []).append(number)
    if not groups and bare:
        evidence = any(VERDICT in read[number][1] for number in bare)
        groups[(*view.dims, "status", *([VERDICT] if evidence else []))] = []
    about = {variable.name: variable.description for variable in kind.outputs}
    return [
        _Group(view, fields, numbers, [] if place else bare, read).grid(
            _name(view, kind, fields), units, about
        )
        for place, (fields, numbers) in enumerate(groups.items())
    ]


def _fields(kind: Kind, record: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a record's fields, without a node's reason, unless it is a variable."""
    single = {variable.name for variable in kind.outputs if not variable.dims}
    is_value = "reason" in single and len(single & record.keys()) > 1
    return tuple(name for name in record if is_value or name != "reason")


def _name(view: View, kind: Kind, fields: Sequence[str]) -> str:
    variable = kind.output(fields[-1])
    dims = [dim for dim in variable.dims if dim != "..."] if variable else []
    return f"{view.stage} by {', '.join(dims)}" if dims else view.stage


@dataclass(frozen=True)
class _Group:
    """Records of the same fields, and the nodes that lack them.

    Attributes:
        view: the stage.
        fields: of the records.
        numbers: of the records.
        bare: numbers of records without values.
        read: all records of the stage.
    """

    view: View
    fields: tuple[str, ...]
    numbers: Sequence[int]
    bare: Sequence[int]
    read: Sequence[Read]

    def grid(
        self, name: str, units: Mapping[str, str], about: Mapping[str, str]
    ) -> Grid:
        records = [self.read[number][1] for number in self.numbers]
        columns = columns_of(self.fields, records, units) if records else []
        heads = [_head(column, about) for column in columns] or [
            Head(field) for field in self.fields
        ]
        cells = {
            number: [_cell(column, row, self.read[number][1]) for column in columns]
            for row, number in enumerate(self.numbers)
        }
        cells |= {number: self._bare(self.read[number][1]) for number in self.bare}
        shown = sorted(cells)
        same = self._same(records)
        kept = [place for place, field in enumerate(self.fields) if field not in same]
        return Grid(
            name,
            [heads[place] for place in kept],
            [
                Row(self.read[number][0], [cells[number][place] for place in kept])
                for number in shown[:MOST_ROWS]
            ],
            [
                (head, cells[shown[0]][place])
                for place, head in enumerate(heads)
                if head.field in same and head.field != "status"
            ],
            max(len(shown) - MOST_ROWS, 0),
        )

    def _same(self, records: Sequence[Mapping[str, Any]]) -> set[str]:
        """Return the fields that need no column."""
        if self.bare or not records:
            return set()
        same = {"status"} if all(r.get("status") == "ok" for r in records) else set()
        if len(records) > 1:
            same |= {
                field
                for field in self.fields
                if len({repr(record[field]) for record in records}) == 1
            }
        return same if len(same) < len(self.fields) else set()

    def _bare(self, record: Mapping[str, Any]) -> list[Cell]:
        status = str(record["status"])
        return [
            Cell(str(record[field]))
            if field in self.view.dims
            else Cell(status, look=status)
            if field == "status"
            else Cell(str(record[VERDICT]))
            if field == VERDICT and VERDICT in record
            else Cell("", look="lacking")
            for field in self.fields
        ]


def _head(column: Column, about: Mapping[str, str]) -> Head:
    description = about.get(column.field, "")
    return Head(column.field, column.units, description, column.is_number)


def _cell(column: Column, row: int, record: Mapping[str, Any]) -> Cell:
    value, text = record[column.field], column.cells[row]
    full = "" if value is None else str(value)
    if column.field == "status":
        return Cell(text, look="" if text == "ok" else text)
    is_odd = isinstance(value, float) and not math.isfinite(value)
    return Cell(text, "" if full == text else full, "odd" if is_odd else "")
