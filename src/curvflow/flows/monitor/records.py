"""Measurements of a monitor along its steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from curvflow.schemas.kind import Variable
from curvflow.schemas.kinds.monitor.read import KIND
from curvflow.schemas.nodes import Array

Row = Mapping[str, Any]
# What stands for a number that a measurement lacks, by type.
_LACKING: dict[str, Any] = {"float64": np.nan, "int64": 0, "bool": False, "str": ""}


class Records:
    """Rows along a dimension, each of them a measurement, in ascending order.

    Attributes:
        along: the dimension, `step` or `llc_step`.
        rows: numbers by name.
    """

    def __init__(self, along: str, rows: Iterable[Row] = ()) -> None:
        """Take the dimension and the rows there are."""
        self.along, self.rows = along, list(rows)

    @property
    def last(self) -> int | None:
        """Step of the last row; None without rows."""
        return int(self.rows[-1][self.along]) if self.rows else None

    def add(self, row: Row) -> None:
        """Put a row between those of earlier and of later steps."""
        step = int(row[self.along])
        earlier = [each for each in self.rows if each[self.along] < step]
        later = [each for each in self.rows if each[self.along] > step]
        self.rows = [*earlier, row, *later]

    def cut(self, step: int) -> None:
        """Remove the rows from a step on."""
        self.rows = [row for row in self.rows if row[self.along] < step]

    def arrays(self) -> dict[str, Array]:
        """Return the variables of all rows, those that some row has."""
        present = {name for row in self.rows for name in row} | {self.along}
        variables = [v for v in KIND.outputs if v.name in present]
        return {v.name: _column(v, self.rows) for v in variables}

    @classmethod
    def of(cls, along: str, arrays: Mapping[str, Array]) -> Records:
        """Return the records that arrays hold.

        Args:
            along: the dimension.
            arrays: of a file, by name.
        """
        names = [
            v.name for v in KIND.outputs if v.name in arrays and v.dims[:1] == (along,)
        ]
        count = len(arrays[along]) if along in arrays else 0
        columns = {name: arrays[name] for name in names}
        return cls(along, [{n: c[i] for n, c in columns.items()} for i in range(count)])

    def plain(self) -> list[dict[str, Any]]:
        """Return the rows as numbers, texts and lists of Python's, for a checkpoint."""
        return [
            {n: np.asarray(v).tolist() for n, v in row.items()} for row in self.rows
        ]


def _column(variable: Variable, rows: Sequence[Row]) -> Array:
    lacking = _LACKING[variable.dtype]
    width = {len(r[variable.name]) for r in rows if np.ndim(r.get(variable.name, 0))}
    if width:
        lacking = np.full(width.pop(), lacking)
    values = [row.get(variable.name, lacking) for row in rows]
    dtype = np.str_ if variable.dtype == "str" else variable.dtype
    return np.array(values, dtype=dtype)
