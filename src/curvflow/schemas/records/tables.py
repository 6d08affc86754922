"""Tables: records as aligned text for a terminal."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from curvflow.schemas.records.records import SECONDS
from curvflow.schemas.words import one_line

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
        is_key: is part of the key of a row.
    """

    field: str
    units: str
    cells: list[str]
    is_number: bool
    is_key: bool

    @cached_property
    def width(self) -> int:
        """Width in characters."""
        return max(map(len, (self.field, self.units, *self.pointed)))

    def with_units(self) -> str:
        """Return the first cell with its units."""
        return f"{self.cells[0]} {self.units}".rstrip()

    def lines(self, *, with_units: bool) -> list[str]:
        """Return heading and cells, all of one width."""
        texts = [self.field, *([self.units] if with_units else []), *self.pointed]
        if self.is_number:
            return [text.rjust(self.width) for text in texts]
        return [text.ljust(self.width) for text in texts]

    @cached_property
    def pointed(self) -> list[str]:
        """The cells, numbers aligned at the decimal point."""
        if not self.is_number:
            return self.cells
        behind = [len(cell) - len(cell.partition(".")[0]) for cell in self.cells]
        most, padded = max(behind), zip(self.cells, behind, strict=True)
        return [cell + " " * (most - width) for cell, width in padded]


# If one of these is not 0, something was measured or failed. A quantity that is NaN at
# every node, none of them diverged, does not exist in the study: a validation loss
# without validation data.
COUNTS = ("count", "diverged", "unconverged")


def unmeasured(records: Rows) -> set[str]:
    """Return the quantities of tables that no node measured; none if all are so."""
    counts = [row for row in records if "quantity" in row and "count" in row]
    measured = {row["quantity"] for row in counts if any(map(row.get, COUNTS))}
    return {row["quantity"] for row in counts} - measured if measured else set()


def render(records: Rows, units: Mapping[str, str]) -> str:
    """Return records as text tables, one per set of fields."""
    # Constant columns are printed once above the table. A table wider than 80
    # characters continues below. Numbers have the digits that the standard error in
    # the column `sem`, or that of their name with `_sem`, leaves them.
    return "\n\n".join(
        "\n".join(_table(list(rows[0]), rows, units))
        for rows in group_by_fields(records, units)
    )


def group_by_fields(records: Rows, units: Mapping[str, str]) -> list[Rows]:
    """Group records by their fields, in order; tables of counts alone come last."""
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
        width = max(len(column.field) for column in columns)
        yield from (line for column in columns for line in _field_lines(column, width))
        return
    same = [column for column in columns if len(set(column.cells)) == 1]
    varying = [column for column in columns if column not in same]
    if constants := [
        f"{column.field} = {column.with_units()}" for column in same if column.cells[0]
    ]:
        yield from _wrapped(constants)
    sections = _sections(varying, rows)
    for part in sections:
        yield ""
        yield from _table([column.field for column in varying], part, units)
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
    """Return rows grouped by the first label, if too wide and the groups are few."""
    if sum(column.width + len(GAP) for column in columns) - len(GAP) <= WIDTH:
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
    """Return one text column per field; standard errors determine the digits."""
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
    """Return the standard error that determines a field's digits, else NaN."""
    name = field.removesuffix("_sem")
    sem = row.get("sem" if field in LIKE_THE_MEAN else f"{name}_sem")
    return sem if isinstance(sem, float) and math.isfinite(sem) else math.nan


def cell(value: Any, error: float) -> str:
    """Return one value as text, with the digits that its standard error leaves."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return "" if value is None else one_line(value)
    if math.isinf(error):  # nothing is known of the digits
        error = math.nan
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
    """Return the power of ten of the first digit, after rounding to `digits`."""
    return int(f"{value:.{digits - 1}e}".partition("e")[2])


def _blocks(columns: Sequence[Column]) -> Iterator[list[Column]]:
    """Yield groups of columns that fit the width, each after the key columns."""
    keys = [column for column in columns if column.is_key]
    block, used = list(keys), sum(column.width + len(GAP) for column in keys)
    room = used
    for column in columns[len(keys) :]:
        if len(block) > len(keys) and room + column.width > WIDTH:
            yield block
            block, room = list(keys), used
        block.append(column)
        room += column.width + len(GAP)
    yield block


def _lines(columns: Sequence[Column]) -> Iterator[str]:
    with_units = any(column.units for column in columns)
    texts = [column.lines(with_units=with_units) for column in columns]
    for line in zip(*texts, strict=True):
        yield GAP.join(line).rstrip()
