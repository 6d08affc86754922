"""Columns of CSV and Parquet files: texts or numbers, and which cells are empty."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from curvflow.errors import InputError, nearest_of_many
from curvflow.schemas.kinds.shared.texts import text_of
from curvflow.schemas.nodes import Array

# Parquet files begin with it; all others are read as text.
PARQUET = b"PAR1"

# Whole numbers beyond have no floats of their own.
EXACT = 1 << 53

# Numbers as people write them: 1,5 or 1,500.25 or 1 500 or 12 % or $3, with the sign of
# typesetters, or with the apostrophe by which a spreadsheet makes texts of them; and
# measurements with their unit, of which a fraction tells that they are no names.
SIGN = r"[+\-\u2212]?"
WRITTEN = re.compile(
    rf"['\"]?[$€£¥]?\s?{SIGN}[$€£¥]?(\d{{1,3}}([,.'\u2019_\s]\d{{3}})+|\d+)"
    r"([.,]\d+)?([eE][+\-\u2212]?\d+)?\s?[%$€£¥]?['\"]?"
    rf"|{SIGN}\d+[.,]\d+\s?[^\W\d_]{{1,3}}"
)

# Words for nothing, in small letters, that are no names unless somebody says so.
NOTHING = frozenset(
    {"n/a", "#n/a", "null", "none", "nil", "<na>", "nan", "?", "-", "--", "."}
)

# Types of texts in Parquet files.
STRINGS = ("string", "large_string", "string_view")

# What pandas calls the index of a table, if it has no name.
INDEX = re.compile(r"__index_level_\d+__")


@dataclass(frozen=True)
class Column:
    """One column of a table of N rows.

    Attributes:
        missing: cells that hold nothing, (N,).
        texts: cells as texts, (N,); None if the file has numbers, which floats hold.
        numbers: cells as numbers, NaN where missing, (N,); None if one is no number.
    """

    missing: Array
    texts: Array | None
    numbers: Array | None

    def of(self, rows: Array) -> Column:
        """Return some of its rows."""
        texts = None if self.texts is None else self.texts[rows]
        numbers = None if self.numbers is None else self.numbers[rows]
        return Column(self.missing[rows], texts, numbers)

    def compact(self, *, is_number: bool) -> Column:
        """Return the column as numbers alone, or as texts alone."""
        if is_number:
            return Column(self.missing, None, self.numbers)
        return Column(self.missing, self.as_texts(), None)

    def lacking(self, numbers: Sequence[float], *, are_names: bool) -> Column:
        """Return the column with more cells that hold nothing.

        Args:
            numbers: that stand for nothing however they are written, as -999.0.
            are_names: whether cells are names, of which 00 is another than 0.
        """
        if self.numbers is None or (are_names and self.texts is not None):
            return self
        missing = self.missing | np.isin(self.numbers, numbers)
        return replace(
            self, missing=missing, numbers=np.where(missing, np.nan, self.numbers)
        )

    def as_texts(self) -> Array:
        """Return the cells as texts, those of numbers as `as_text` writes them."""
        if self.texts is not None:
            return self.texts
        assert self.numbers is not None
        return np.array([as_text(number) for number in self.numbers], dtype=object)

    def sortable(self) -> Array:
        """Return the cells as what they are compared by: numbers, or else texts.

        Whole numbers that floats do not distinguish, as identifiers may be, are of
        Python.
        """
        if self.numbers is None:
            return self.as_texts()
        if self.texts is not None and (np.abs(self.numbers) >= EXACT).any():
            try:
                return np.array([int(text) for text in self.texts], dtype=object)
            except ValueError:
                return self.numbers
        return self.numbers


@dataclass(frozen=True)
class Table:
    """A table with named columns, which are converted when they are requested.

    Attributes:
        names: of the columns, in the order of the file.
        num_rows: rows, N.
        places: number of each row's line, or of the row itself; (N,).
        unit: what these numbers count, `line` or `row`.
        read: from a name to the column.
    """

    names: Sequence[str]
    num_rows: int
    places: Array
    unit: str
    read: Callable[[str], Column]

    def column(self, name: str, field: str) -> Column:
        """Return a column.

        Args:
            name: of the column.
            field: parameter that names it, for messages.

        Raises:
            InputError: the table has no such column, or cannot use its type.
        """
        if name not in self.names:
            raise InputError(
                f"{field}: expected a column of the table, got '{name}'. "
                f"{nearest_of_many(name, self.names)}"
            )
        return self.read(name)

    def place(self, row: int) -> str:
        """Return where a row is in the file, such as `line 7`."""
        return f"{self.unit} {self.places[row]}"


def as_text(number: float) -> str:
    """Return a number as text, a whole one without a point."""
    return str(int(number)) if float(number).is_integer() else repr(float(number))


def table_of(
    content: Array,
    delimiter: str,
    decimal: str,
    missing_values: Collection[str],
    field: str,
) -> Table:
    """Read a CSV or a Parquet file.

    Args:
        content: the bytes of the file.
        delimiter: between the cells of a CSV file.
        decimal: before the decimals of its numbers.
        missing_values: cells that hold nothing.
        field: for messages.

    Returns:
        The table.

    Raises:
        InputError: it is no such file, its columns have no distinct names, or a
            package is not installed.
    """
    if content[:4].tobytes() == PARQUET:
        return _parquet(content, missing_values, field)
    read = partial(column_of, missing_values=missing_values, decimal=decimal)
    return _csv(text_of(content, field), delimiter, read, field)


def _csv(
    text: str, delimiter: str, column: Callable[[Sequence[str]], Column], field: str
) -> Table:
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        # A quote behind a space quotes, too, as spaces around cells do not count.
        skipinitialspace=delimiter != " ",
        strict=True,
    )
    rows, places = [], []
    try:
        for row in reader:
            if row:
                rows.append(row)
                places.append(reader.line_num)
    except csv.Error as error:
        raise InputError(
            f"{field}: expected a CSV file, got line {reader.line_num} with: {error}. "
            "Correct the line."
        ) from error
    header = [name.strip() for name in rows[0]] if rows else []
    _check_names(header, delimiter, field)
    for row, place in zip(rows, places, strict=True):
        if len(row) != len(header):
            raise InputError(
                f"{field}: expected {len(header)} cells in line {place}, as the first "
                f"line has, got {len(row)}. Correct the line, or name the delimiter."
            )
    cells = rows[1:]

    def read(name: str) -> Column:
        at = header.index(name)
        return column([row[at].strip() for row in cells])

    return Table(header, len(cells), np.array(places[1:], np.int64), "line", read)


def _check_names(header: Sequence[str], delimiter: str, field: str) -> None:
    for at, name in enumerate(header, start=1):
        if not name:
            raise InputError(
                f"{field}: expected a name for each column, got none for column {at}. "
                "Name it in the first line, or write the table without its index."
            )
        if name in header[: at - 1]:
            raise InputError(
                f"{field}: expected names of columns that differ, got '{name}' twice. "
                "Rename one in the first line."
            )
    if len(header) < 2:
        raise InputError(
            f"{field}: expected at least 2 columns, got {len(header)} with delimiter: "
            f"'{delimiter}'. Change delimiter."
        )


def column_of(
    cells: Sequence[str], missing_values: Collection[str], decimal: str = "."
) -> Column:
    """Return a column of texts, with its numbers if all of them are.

    Args:
        cells: texts.
        missing_values: texts that stand for nothing.
        decimal: before the decimals of numbers.
    """
    texts = np.array(cells, dtype=object)
    missing = np.array([cell in missing_values for cell in cells], dtype=bool)
    numbers = np.full(len(cells), np.nan)
    try:
        numbers[~missing] = [_number(cell, decimal) for cell in texts[~missing]]
    except ValueError:
        return Column(missing, texts, None)
    return Column(missing, texts, numbers)


def _number(cell: str, decimal: str) -> float:
    """Return a cell as a number; ValueError if it is none."""
    if "_" in cell:  # which Python takes between digits
        raise ValueError(cell)
    if decimal != ".":
        if "." in cell:
            raise ValueError(cell)
        cell = cell.replace(decimal, ".")
    return float(cell)


def numbers_among(texts: Collection[str], decimal: str) -> list[float]:
    """Return the numbers that some of the texts are.

    Args:
        texts: any.
        decimal: before the decimals of numbers.
    """
    return [_number(text, decimal) for text in texts if _is_number(text, decimal)]


def first_slip(column: Column, decimal: str) -> int | None:
    """Return the row of the first cell that is no number where most cells are.

    Most likely measurements are meant, of which a slip, or the way that all are
    written, must not make names.

    Args:
        column: of texts.
        decimal: before the decimals of numbers.

    Returns:
        Its number; None if at most half of the cells are numbers, in any way of
        writing them.
    """
    count, first = 0, None
    cells, present = column.as_texts(), np.flatnonzero(~column.missing)
    for row in present:
        is_number = _is_number(cells[row], decimal)
        count += is_number or WRITTEN.fullmatch(cells[row]) is not None
        if first is None and not is_number:
            first = int(row)
    return first if 2 * count > len(present) else None


def is_numbers_as_text(column: Column, decimal: str) -> bool:
    """Return whether all cells are numbers that the file holds as texts."""
    if column.numbers is not None or column.missing.all():
        return False
    return all(_is_number(cell, decimal) for cell in column.as_texts()[~column.missing])


def first_nothing(column: Column) -> int | None:
    """Return the row of the first cell that is a word for nothing, or None."""
    texts = column.as_texts()
    rows = np.flatnonzero(~column.missing)
    return next((int(row) for row in rows if texts[row].lower() in NOTHING), None)


def confused(column: Column) -> tuple[int, int] | None:
    """Return the rows of two whole numbers that floats do not distinguish, or None."""
    rows = np.flatnonzero(~column.missing)
    there = column.of(rows)
    exact, numbers = there.sortable(), there.numbers
    if numbers is None or exact is numbers:
        return None
    seen = dict[float, tuple[object, int]]()
    for row, number, whole in zip(rows.tolist(), numbers, exact, strict=True):
        earlier, first = seen.setdefault(number, (whole, row))
        if earlier != whole:
            return first, row
    return None


def first_text(column: Column, decimal: str) -> int:
    """Return the row of the first cell that is no number, 0 if all are missing."""
    texts = column.as_texts()
    rows = (row for row in np.flatnonzero(~column.missing))
    return next((int(r) for r in rows if not _is_number(texts[r], decimal)), 0)


def _is_number(cell: str, decimal: str) -> bool:
    try:
        _number(cell, decimal)
    except ValueError:
        return False
    return True


def _parquet(content: Array, missing_values: Collection[str], field: str) -> Table:
    if find_spec("pyarrow") is None:
        raise InputError(
            f"{field}: expected pyarrow installed for a Parquet file, got none. "
            "Run pip install pyarrow, or write a CSV file."
        )
    import pyarrow  # an extra, and slow to load
    from pyarrow import parquet

    broken = pyarrow.ArrowException, OSError, ValueError
    try:
        file = parquet.ParquetFile(pyarrow.BufferReader(content.tobytes()))
    except broken as error:
        raise InputError(_not_read(field, error)) from error
    # An index without a name numbers the rows, and pandas takes it for none of them.
    names = [name for name in file.schema_arrow.names if not INDEX.fullmatch(name)]
    _check_names(names, ",", field)

    def read(name: str) -> Column:
        try:
            cells = file.read(columns=[name]).column(0)
            return _arrow_column(cells, missing_values, f"{field}: column '{name}'")
        except InputError:
            raise
        except broken as error:
            raise InputError(_not_read(field, error)) from error

    rows = file.metadata.num_rows
    return Table(names, rows, np.arange(1, rows + 1), "row", read)


def _not_read(field: str, error: Exception) -> str:
    reason = str(error).partition("\n")[0]
    return f"{field}: expected a Parquet file, got one that cannot be read: {reason}"


def _arrow_column(cells: Any, missing_values: Collection[str], where: str) -> Column:
    import pyarrow

    types = pyarrow.types
    if types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    kind = cells.type
    missing = cells.is_null().to_numpy()
    if str(kind) in STRINGS:
        # As of CSV files, spaces around cells do not count.
        plain = [(cell or "").strip() for cell in cells.to_pylist()]
        texts = np.array(plain, dtype=object)
        named = np.array([cell in missing_values for cell in texts], dtype=bool)
        return Column(missing | named, texts, None)
    if types.is_date(kind) or types.is_timestamp(kind):
        return Column(missing, _times_as_texts(cells), None)
    if types.is_boolean(kind):
        cells = cells.cast(pyarrow.int8())
    elif not any(
        is_one(kind)
        for is_one in (types.is_integer, types.is_floating, types.is_decimal)
    ):
        raise InputError(
            f"{where}: expected numbers, texts or times, got {kind}. Convert the "
            "column, or leave it out."
        )
    plain = cells.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False)
    numbers = np.array(plain, dtype=np.float64)
    column = Column(missing | np.isnan(numbers), None, numbers)
    if types.is_floating(kind) or not (np.abs(numbers) >= EXACT).any():
        return column
    return _exact(column, cells.to_pylist(), missing_values)


def _exact(
    column: Column, cells: Sequence[Any], missing_values: Collection[str]
) -> Column:
    """Return a column with whole numbers as texts, for floats do not hold all."""
    if any(cell is not None and cell != int(cell) for cell in cells):
        return column  # decimals with fractions, which are no identifiers
    texts = ["" if cell is None else str(int(cell)) for cell in cells]
    named = np.array([text in missing_values for text in texts], dtype=bool)
    return replace(
        column, missing=column.missing | named, texts=np.array(texts, dtype=object)
    )


def _times_as_texts(cells: Any) -> Array:
    """Return dates and times as texts of one form and zone, in the order of time."""
    import pyarrow

    kind = cells.type
    unit = "s" if pyarrow.types.is_date32(kind) else getattr(kind, "unit", "ms")
    times = cells.cast(pyarrow.timestamp(unit), safe=False).to_numpy()
    there = times[~np.isnat(times)]
    # With as many digits as distinguish them, and all with the same.
    units = ("s", "us", "ns")
    form = next(u for u in units if (there.astype(f"M8[{u}]") == there).all())
    texts = np.datetime_as_string(times.astype(f"M8[{form}]"))
    return np.array([text.replace("T", " ") for text in texts], dtype=object)
