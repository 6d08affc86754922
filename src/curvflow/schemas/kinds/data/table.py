"""Declaration of `data.table`, and the check of its file while planning."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from curvflow.errors import InputError, nearest
from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Files, Kind, Samples, Variable
from curvflow.schemas.kinds.shared.columns import (
    Column,
    Table,
    as_text,
    confused,
    first_nothing,
    first_slip,
    first_text,
    is_numbers_as_text,
    numbers_among,
    table_of,
)
from curvflow.schemas.kinds.shared.datasets import OUTPUTS, check_split, latest
from curvflow.schemas.nodes import Array, Data
from curvflow.schemas.params import Names, Neutral, Params, SourceFile

MISSING = ("", "NA", "NaN", "nan")


# A year, a date or a time, whose order as text is that in time.
ISO_TIME = re.compile(r"\d{4}(-\d\d(-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?)?)?)?")


class TableParams(Params):
    """A file, its columns, and how they become inputs, targets and parts."""

    path: Annotated[str, SourceFile(raw=True)] = Field(
        description="CSV file with the names of its columns in the first line, or "
        "Parquet file"
    )
    target: str = Field(description="column of the targets")
    columns: Names | None = Field(
        None,
        min_length=1,
        description="columns of the inputs, in this order; null takes all others but "
        "group and time",
    )
    categories: Names = Field(
        (), description="columns of the inputs whose numbers are names of categories"
    )
    targets_as: Literal["labels", "values"] | None = Field(
        None,
        description="what the targets are; null takes texts, and 0 and 1, for labels, "
        "numbers with fractions for values, and asks about whole numbers",
    )
    scaling: Literal["standard", "minmax", "none"] = Field(
        "standard",
        description="of columns of numbers, by their training part: mean 0 and "
        "standard deviation 1, or least 0 and largest 1",
    )
    unknown: Literal["refuse", "zeros"] = Field(
        "refuse",
        description="a category that the training part lacks: refuse it, or write "
        "zeros for it",
    )
    missing: Literal["refuse", "mean", "drop"] = Field(
        "refuse",
        description="empty cells: refuse them; take the mean of the training part; "
        "drop their rows",
    )
    missing_values: Names = Field(MISSING, description="what empty cells have")
    max_categories: int = Field(100, ge=1, description="most categories of a column")
    delimiter: str = Field(
        ",", min_length=1, max_length=1, description="between cells of a CSV file"
    )
    decimal: Annotated[Literal[".", ","], Neutral(".")] = Field(
        ".", description="before the decimals of numbers in a CSV file"
    )
    test_fraction: float = Field(0.2, ge=0, lt=1, description="share held out")
    group: str | None = Field(
        None, description="column whose equal rows are all in one part"
    )
    time: str | None = Field(
        None, description="column whose largest rows are held out, no row at random"
    )
    seed: int = Field(0, ge=0, description="seed of the split")

    @model_validator(mode="after")
    def _distinct_columns(self) -> TableParams:
        check_split(self.group, self.time, self.test_fraction)
        if self.target in (self.group, self.time, *(self.columns or ())):
            raise ValueError(
                f"expected a target that is no input, group or time, got "
                f"'{self.target}'. Remove it there."
            )
        for name in self.columns or ():
            if (self.columns or ()).count(name) > 1:
                raise ValueError(
                    f"expected distinct columns, got '{name}' twice. Name each once."
                )
        if self.decimal == self.delimiter:
            raise ValueError(
                f"decimal {self.decimal!r} cannot be combined with the same delimiter. "
                "Set delimiter to the character between cells."
            )
        if self.delimiter in '"\n\r':
            raise ValueError(
                f"expected a delimiter such as ',' or ';', got {self.delimiter!r}. "
                "Name the character between cells."
            )
        return self


@dataclass(frozen=True)
class Read:
    """Columns of a table that are used, of the rows that are kept.

    Attributes:
        places: line or row of the file that each row is from, (N,).
        unit: what these count, `line` or `row`.
        inputs: by name.
        are_categories: names of the inputs that are categories.
        targets: labels, int64, or values, (N,).
        classes: names of the classes; none of values.
        by: what rows are split by, if by a column.
    """

    places: Array
    unit: str
    inputs: dict[str, Column]
    are_categories: set[str]
    targets: Array
    classes: list[str]
    by: Array | None

    def place(self, row: int) -> str:
        """Return where one of the rows kept is in the file."""
        return f"{self.unit} {self.places[row]}"


def read(params: TableParams, files: Files) -> Read:
    """Take the columns out of the file.

    Args:
        params: names and treatment of the columns.
        files: the bytes of the file, under `path`.

    Returns:
        The columns that are used, without the rows that are dropped.

    Raises:
        InputError: the file is no table, lacks a column, or has cells that cannot be
            used.
    """
    return _read(
        params.model_copy(update={"seed": 0}), files["path"]["bytes"].tobytes()
    )


# Seeds of one study read one table, several times each: planned, checked, run.
@lru_cache(maxsize=1)
def _read(params: TableParams, content: bytes) -> Read:
    raw = np.frombuffer(content, np.uint8)
    table = table_of(
        raw, params.delimiter, params.decimal, params.missing_values, "path"
    )
    names = _input_names(params, table)
    by = next((n for n in ("group", "time") if getattr(params, n) is not None), None)
    fields = dict.fromkeys(names, "columns") | {params.target: "target"}
    fields |= {} if by is None else {getattr(params, by): by}
    columns = {name: _column(params, table, name, fields[name]) for name in fields}
    are_categories = {
        name for name in names if _is_category(params, table, name, columns[name])
    }
    numbers = set(names) - are_categories
    rows = _kept(params, table, columns, numbers)
    columns = {name: column.of(rows) for name, column in columns.items()}
    measured = {n: c for n, c in columns.items() if n not in are_categories}
    _check_finite(table, rows, measured)
    targets, classes = _targets(params, table, rows, columns[params.target])
    values = numbers if classes else numbers | {params.target}
    _check_exact(params, table, rows, {name: columns[name] for name in values})
    if by == "time":
        _check_times(table, rows, columns[getattr(params, by)])
    for name in names:
        if name in are_categories:
            _check_few(params, name, columns[name])
    return Read(
        table.places[rows],
        table.unit,
        {name: columns[name].compact(is_number=name in numbers) for name in names},
        are_categories,
        targets,
        classes,
        None if by is None else columns[getattr(params, by)].sortable(),
    )


def _input_names(params: TableParams, table: Table) -> list[str]:
    others = {params.target, params.group, params.time}
    names = params.columns or [n for n in table.names if n not in others]
    if not names:
        raise InputError(
            "columns: expected at least one column of inputs, got none. Name some."
        )
    for name in params.categories:
        if name not in names:
            raise InputError(
                f"categories: expected columns of the inputs, got '{name}'. "
                f"{nearest(name, names)}"
            )
    return list(names)


def _column(params: TableParams, table: Table, name: str, field: str) -> Column:
    """Return a column, in which a number may stand for nothing."""
    decimal = params.decimal if table.unit == "line" else "."
    numbers = numbers_among(params.missing_values, decimal)
    are_names = name in params.categories
    return table.column(name, field).lacking(numbers, are_names=are_names)


def _is_category(params: TableParams, table: Table, name: str, column: Column) -> bool:
    if name in params.categories:
        return True
    if column.numbers is not None:
        return False
    first = first_slip(column, params.decimal)
    if first is not None:
        cell = column.as_texts()[first]
        raise InputError(
            f"path: expected numbers in column '{name}', got '{cell}' "
            f"in {table.place(first)}. {_mend(params, table, cell)}, add it to "
            "missing_values, or name the column in categories."
        )
    if is_numbers_as_text(column, params.decimal):
        raise InputError(
            f"path: expected numbers or names in column '{name}', got texts of numbers "
            f"such as '{column.as_texts()[~column.missing][0]}'. Write the column as "
            "numbers, or name it in categories."
        )
    if (row := first_nothing(column)) is not None:
        raise InputError(
            f"path: expected names of categories in column '{name}', got "
            f"'{column.as_texts()[row]}' in {table.place(row)}. Add it to "
            "missing_values, or name the column in categories."
        )
    return True


def _mend(params: TableParams, table: Table, cell: str) -> str:
    """Return what to do about a cell that is no number."""
    # Of 1,500 it is not plain what the comma is.
    has_comma = re.fullmatch(r"[+-]?\d+,(\d\d?|\d{4,})", cell) is not None
    is_free = table.unit == "line" and params.decimal != "," != params.delimiter
    return "Set decimal: ','" if has_comma and is_free else "Mend it"


def _kept(
    params: TableParams, table: Table, columns: dict[str, Column], numbers: set[str]
) -> Array:
    """Return the rows that are used."""
    if params.missing == "drop":
        empty = np.any([column.missing for column in columns.values()], axis=0)
        return np.flatnonzero(~empty)
    for name, column in columns.items():
        if params.missing == "mean" and name in numbers:
            continue
        if column.missing.any():
            place = table.place(int(np.argmax(column.missing)))
            remedy = "Set missing: mean or drop."
            if params.missing == "mean":
                remedy = "A mean has numbers alone. Set missing: drop."
            elif name not in numbers:
                remedy = "Set missing: drop."
            raise InputError(
                f"path: expected a value in column '{name}', got none in {place}. "
                f"{remedy}"
            )
    return np.arange(table.num_rows)


def _check_finite(table: Table, rows: Array, columns: dict[str, Column]) -> None:
    for name, column in columns.items():
        if column.numbers is None:
            continue
        wrong = ~(np.isfinite(column.numbers) | column.missing)
        if wrong.any():
            first = int(np.argmax(wrong))
            got = "NaN" if np.isnan(column.numbers[first]) else "infinity"
            raise InputError(
                f"path: expected finite numbers in column '{name}', got {got} in "
                f"{table.place(rows[first])}. Mend it, or add it to missing_values."
            )


def _check_exact(
    params: TableParams, table: Table, rows: Array, columns: dict[str, Column]
) -> None:
    """Refuse identifiers that would be one number, which they are not to be."""
    for name, column in columns.items():
        if (both := confused(column)) is None:
            continue
        first, second = (column.as_texts()[row] for row in both)
        remedy = "Leave it out of columns, or name it in categories."
        if name == params.target:
            remedy = "Take another unit, or set targets_as: labels."
        raise InputError(
            f"path: expected numbers that floats distinguish in column '{name}', got "
            f"{first} and {second} in {table.place(rows[both[1]])}. {remedy}"
        )


def _check_times(table: Table, rows: Array, column: Column) -> None:
    """Refuse times whose order as texts may not be their order in time."""
    if column.numbers is not None:
        return
    texts = column.as_texts()
    form = re.sub(r"\d", "0", texts[0]) if len(texts) else ""
    for number, text in enumerate(texts):
        if not ISO_TIME.fullmatch(text) or re.sub(r"\d", "0", text) != form:
            raise InputError(
                f"time: expected numbers, or dates such as 2024-01-31 of one form, got "
                f"'{text}' in {table.place(rows[number])}. Write them so, or split by "
                "another column."
            )


def _check_few(params: TableParams, name: str, column: Column) -> None:
    count = len(set(column.as_texts()))
    if count > params.max_categories:
        raise InputError(
            f"max_categories: expected at most {params.max_categories} categories in "
            f"column '{name}', got {count}. Leave it out of columns, or raise "
            "max_categories."
        )


def _targets(
    params: TableParams, table: Table, rows: Array, column: Column
) -> tuple[Array, list[str]]:
    """Return labels with the names of their classes, or values."""
    numbers = column.numbers
    if numbers is None and params.targets_as == "values":
        first = first_text(column, params.decimal)
        cell = column.as_texts()[first]
        raise InputError(
            f"target: expected numbers as values, got '{cell}' in "
            f"{table.place(rows[first])}. {_mend(params, table, cell)}, or set "
            "targets_as: labels."
        )
    if numbers is None and params.targets_as is None:
        slip = first_slip(column, params.decimal)
        if slip is not None:
            cell = column.as_texts()[slip]
            raise InputError(
                f"target: expected numbers in column '{params.target}', got '{cell}' "
                f"in {table.place(rows[slip])}. {_mend(params, table, cell)}, add it "
                "to missing_values, or set targets_as: labels."
            )
    if numbers is None and params.targets_as is None:
        _check_names_of_classes(params, table, rows, column)
    if numbers is not None and not _are_labels(params, numbers):
        return numbers, []
    classes, labels = np.unique(column.sortable(), return_inverse=True)
    if len(classes) < 2:
        raise InputError(
            f"target: expected at least 2 classes in column '{params.target}', got "
            f"{len(classes)}. Name another column, or set targets_as: values."
        )
    names = classes if numbers is None else [as_text(number) for number in classes]
    return labels.astype(np.int64), list(names)


def _check_names_of_classes(
    params: TableParams, table: Table, rows: Array, column: Column
) -> None:
    """Refuse texts that may be values, or none, and not names of classes."""
    if (row := first_nothing(column)) is not None:
        raise InputError(
            f"target: expected names of classes in column '{params.target}', got "
            f"'{column.as_texts()[row]}' in {table.place(rows[row])}. Add it to "
            "missing_values, or set targets_as: labels."
        )
    texts = column.as_texts()
    if is_numbers_as_text(column, params.decimal) and not all(
        float(text.replace(params.decimal, ".")).is_integer() for text in texts
    ):
        raise InputError(
            f"target: expected labels or values, got texts of numbers such as "
            f"'{texts[0]}' in column '{params.target}'. Write the column as numbers, "
            "or set targets_as: labels."
        )


def _are_labels(params: TableParams, numbers: Array) -> bool:
    if params.targets_as is not None:
        return params.targets_as == "labels"
    if set(numbers) == {0.0, 1.0}:
        return True
    if len(numbers) and np.array_equal(numbers, np.rint(numbers)):
        listed = f"{as_text(numbers.min())} to {as_text(numbers.max())}"
        raise InputError(
            f"target: expected labels or values, got whole numbers, {listed}, in "
            f"column '{params.target}'. Set targets_as: labels or values."
        )
    return False


def num_test(params: TableParams, data: Read) -> int:
    """Return how many rows are to be held out."""
    return round(params.test_fraction * len(data.places))


def check(params: TableParams, files: Files) -> None:
    """Refuse a file that is no data set, before anything is computed.

    Args:
        params: names and treatment of the columns.
        files: the bytes of the file, under `path`.

    Raises:
        InputError: the file is no table, lacks a column, has cells that cannot be used,
            or too few rows.
    """
    data = read(params, files)
    count = num_test(params, data)
    left = len(data.places) - count
    if params.time is not None and data.by is not None:
        left = int(np.sum(~latest(data.by, count)))
    if left < 2:
        raise InputError(
            f"test_fraction: expected at least 2 rows left for training, got {left} of "
            f"{len(data.places)}. {'Lower it' if count else 'Take more rows'}."
        )
    if params.group is not None and count and data.by is not None:
        groups = len(np.unique(data.by))
        if groups < 2:
            raise InputError(
                f"group: expected at least 2 groups to split, got {groups}. Name "
                "another column, or remove group."
            )


def samples_in_files(params: TableParams, files: Files) -> Samples:
    """Return the form of the samples, without a shape where the split decides it.

    Args:
        params: names and treatment of the columns.
        files: the bytes of the file, under `path`.
    """
    data = read(params, files)
    shape = None
    if not data.are_categories or not params.test_fraction:
        shape = (sum(_widths(data)),)
    if data.classes:
        return Samples(shape, "labels", len(data.classes))
    return Samples(shape, "values", 1)


def _widths(data: Read) -> Iterable[int]:
    for name, column in data.inputs.items():
        yield len(set(column.as_texts())) if name in data.are_categories else 1


KIND = Kind(
    name="data.table",
    version=4,
    summary="Columns of a CSV or Parquet file, scaled by their training part.",
    params=TableParams,
    returns=Data,
    outputs=(
        *OUTPUTS,
        Variable(
            "feature",
            "name of each input: its column, or column=category",
            ("feature",),
            dtype="str",
            bulk=True,
        ),
        Variable(
            "shift",
            "of a column, what was subtracted from it",
            ("feature",),
            units="as the column",
            bulk=True,
        ),
        Variable(
            "width",
            "of a column, what it was then divided by",
            ("feature",),
            units="as the column",
            bulk=True,
        ),
        Variable(
            "class_names",
            "of labels, what each class is called in the file",
            ("class",),
            dtype="str",
            bulk=True,
            optional=True,
        ),
    ),
    varying=("seed",),
    check=check,
    samples_in_files=samples_in_files,
)

EXPLANATION = Explanation(
    formula=(
        "x = (column - shift) / width, with mean and standard deviation or least and "
        "range of the training part; 0 and 1 for each category"
    ),
    source="none: the data are the user's",
    cost="none: the file is read once, and by its content",
    example="""\
study: example
axes: {seed: 3}
stages:
  wine: {use: data.table, path: wine.csv, target: quality, seed: "${seed}"}
  later: {use: data.table, path: wine.csv, target: sugar, time: year,
          columns: [acid, colour], unknown: zeros}
""",
    page="how-to/own-data.md#a-table",
    units={"max_categories": "category"},
)
