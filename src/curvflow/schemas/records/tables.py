"""Records as plain aligned text, for people at a terminal."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from curvflow.schemas.records.records import SECONDS

Rows = Sequence[Mapping[str, Any]]

WIDTH = 80
GAP = "  "
DIGITS = 4  # significant, where no standard error says how many there are
ROUNDING = 1e-14  # of a value; an error below it is none
# Columns of a table that are known as well as the mean is.
LIKE_THE_MEAN = ("mean", "sd", "sem", "low", "high")


@dataclass(frozen=True)
class Column:
    """One column as text.

    Attributes:
        field: its name.
        units: its units.
        cells: one text per row.
        is_number: numbers are set flush right.
        is_key: belongs to what tells the rows apart.
    """

    field: str
    units: str
    cells: list[str]
    is_number: bool
    is_key: bool

    @property
    def width(self) -> int:
        """Characters needed."""
        return max(map(len, (self.field, self.units, *self.pointed())))

    def with_units(self) -> str:
        """Return the first cell with its units."""
        return f"{self.cells[0]} {self.units}".rstrip()

    def lines(self, *, with_units: bool) -> list[str]:
        """Return heading and cells, all of one width."""
        texts = [self.field, *([self.units] if with_units else []), *self.pointed()]
        if self.is_number:
            return [text.rjust(self.width) for text in texts]
        return [text.ljust(self.width) for text in texts]

    def pointed(self) -> list[str]:
        """Return the cells, the points of numbers one below another."""
        if not self.is_number:
            return self.cells
        behind = [len(cell) - len(cell.partition(".")[0]) for cell in self.cells]
        padded = zip(self.cells, behind, strict=True)
        return [cell + " " * (max(behind) - own) for cell, own in padded]


def render(records: Rows, units: Mapping[str, str]) -> str:
    """Lay records out in columns; those with other fields form a table of their own.

    What is the same in all rows is said once above the table. A table wider than 80
    columns goes on below itself. Numbers have the digits that the standard error in the
    column `sem`, or that of their name with `_sem`, leaves them.

    Args:
        records: as from `schemas.records`.
        units: units per field.

    Returns:
        Several lines; nothing without records.
    """
    return "\n\n".join(
        "\n".join(_table(list(rows[0]), rows, units))
        for rows in group_by_fields(records, units)
    )


def group_by_fields(records: Rows, units: Mapping[str, str]) -> list[Rows]:
    """Part records into those of equal fields.

    Args:
        records: as from `schemas.records`.
        units: units per field; labels have none.

    Returns:
        The rows of each table, in the order of the first of each; those of counts
        alone, such as of products, come behind what was measured.
    """
    tables: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for record in records:
        tables.setdefault(tuple(record), []).append(record)
    return sorted(tables.values(), key=lambda rows: not _is_measured(rows, units))


def _is_measured(rows: Rows, units: Mapping[str, str]) -> bool:
    names = [name for name in rows[0] if name in units]
    return any(
        isinstance(row[name], float)
        for row in rows
        for name in names
        if not name.startswith(SECONDS)
    )


def _table(
    fields: Sequence[str], rows: Rows, units: Mapping[str, str]
) -> Iterator[str]:
    columns = columns_of(fields, rows, units)
    if len(rows) == 1:
        width = max(len(one.field) for one in columns)
        yield from (line for one in columns for line in _field_lines(one, width))
        return
    same = [one for one in columns if len(set(one.cells)) == 1]
    varying = [one for one in columns if one not in same]
    if told := [f"{one.field} = {one.with_units()}" for one in same if one.cells[0]]:
        yield from _wrapped(told)
    sections = _sections(varying, rows)
    for part in sections:
        yield ""
        yield from _table([one.field for one in varying], part, units)
    for number, block in enumerate(_blocks(varying) if not sections else ()):
        yield from [""] if number else []
        yield from _lines(block)


def _field_lines(column: Column, width: int) -> Iterator[str]:
    yield from textwrap.wrap(
        column.with_units(),
        WIDTH,
        initial_indent=f"{column.field:<{width}}{GAP}",
        subsequent_indent=" " * (width + len(GAP)),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [column.field]


def _sections(columns: Sequence[Column], rows: Rows) -> list[Rows]:
    """Return the rows by the first label, if too wide together and these are few."""
    if sum(one.width + len(GAP) for one in columns) - len(GAP) <= WIDTH:
        return []
    parts: dict[str, list[Mapping[str, Any]]] = {}
    for cell, row in zip(columns[0].cells, rows, strict=True):
        parts.setdefault(cell, []).append(row)
    few = columns[0].is_key and len(parts) ** 2 < len(rows)
    return list(parts.values()) if few else []


def _wrapped(items: Sequence[str]) -> Iterator[str]:
    line = items[0]
    for item in items[1:]:
        if len(line) + len(item) + 2 > WIDTH:
            yield f"{line},"
            line = item
        else:
            line = f"{line}, {item}"
    yield line


def columns_of(
    fields: Sequence[str], rows: Rows, units: Mapping[str, str]
) -> list[Column]:
    """Write the fields of records as columns of text.

    Args:
        fields: of all the records, in order.
        rows: the records.
        units: units per field.

    Returns:
        One column per field; numbers have the digits that their standard error leaves.
    """
    columns, leading = [], True
    for field in fields:
        values = [row[field] for row in rows]
        # Axes, dimensions and names at the front tell the rows apart.
        named = field != "units" and not _has_fractions(values)
        leading = leading and (field not in units or named)
        # Where each row has its own units, the columns have none.
        shown = "" if "units" in rows[0] else units.get(field, "")
        columns.append(
            Column(
                field,
                "" if shown == "1" else shown,
                [
                    _text(field, row, is_label=bool(units) and field not in units)
                    for row in rows
                ],
                all(isinstance(v, int | float) for v in values),
                leading,
            )
        )
    return columns


def _text(field: str, row: Mapping[str, Any], *, is_label: bool) -> str:
    value = row[field]
    if field == "units" and value == "1":
        return ""  # as in the headings
    error = _error(field, row)
    if is_label and isinstance(value, float) and math.isnan(error):
        short = f"{value:.4g}"
        if float(short) == value:  # written so, not measured
            return short
    return cell(value, error)


def _has_fractions(values: Sequence[Any]) -> bool:
    return any(isinstance(value, float) for value in values)


def _error(field: str, row: Mapping[str, Any]) -> float:
    """Return the standard error that says a field's digits, else NaN."""
    name = field.removesuffix("_sem")
    sem = row.get("sem" if field in LIKE_THE_MEAN else f"{name}_sem")
    return sem if isinstance(sem, float) and math.isfinite(sem) else math.nan


def cell(value: Any, error: float) -> str:
    """Write one value.

    Args:
        value: a number, text or nothing.
        error: its standard error; NaN if none is known.

    Returns:
        Text on one line; a number has the digits that its error leaves.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return "" if value is None else " ".join(str(value).split())
    if error <= ROUNDING * abs(value):  # there is no more than that in a double
        error, value = 0, float(f"{value:.14g}")
    exact = error == 0 and value.is_integer() and abs(value) < 1e6
    if not math.isfinite(value) or value == 0 or exact:
        return f"{value:.6g}"
    exponent = _exponent(value, DIGITS)
    last = _exponent(error, 2) - 1 if error > 0 else exponent - DIGITS + 1
    if -5 < exponent < 6 and last <= 0:
        return f"{value:.{-last}f}"
    digits, _, power = f"{value:.{max(exponent - last, 0)}e}".partition("e")
    return f"{digits}e{int(power)}"


def _exponent(value: float, digits: int) -> int:
    """Return the power of ten of the first digit, once rounded to some digits."""
    return int(f"{value:.{digits - 1}e}".partition("e")[2])


def _blocks(columns: Sequence[Column]) -> Iterator[list[Column]]:
    """Yield columns to the width, each time after those that tell the rows apart."""
    keys = [one for one in columns if one.is_key]
    block, used = list(keys), sum(one.width + len(GAP) for one in keys)
    room = used
    for one in columns[len(keys) :]:
        if len(block) > len(keys) and room + one.width > WIDTH:
            yield block
            block, room = list(keys), used
        block.append(one)
        room += one.width + len(GAP)
    yield block


def _lines(columns: Sequence[Column]) -> Iterator[str]:
    with_units = any(one.units for one in columns)
    texts = [one.lines(with_units=with_units) for one in columns]
    for line in zip(*texts, strict=True):
        yield GAP.join(line).rstrip()
