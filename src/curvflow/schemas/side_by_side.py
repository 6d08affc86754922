"""Tables whose columns are what other stages have measured."""

from __future__ import annotations

from pydantic import Field

from curvflow.schemas.names import OneOrMoreNames
from curvflow.schemas.params import Params
from curvflow.schemas.variables import Variable


class SideBySide(Params):
    """What has a row, and what has a column."""

    rows: OneOrMoreNames = Field(
        min_length=1,
        description="axes each of whose labels has a row; a stage that lacks some of "
        "them repeats its values",
    )
    quantities: OneOrMoreNames | None = Field(
        None, description="variables; null takes all numbers that tables hold"
    )


OUTPUTS = (
    Variable("row", "labels of the row", ("row",), dtype="str"),
    Variable(
        "column",
        "variable, with the stage's name before it if several stages have it and the "
        "element's label behind it if it has several",
        ("column",),
        dtype="str",
    ),
    Variable("column_units", "units of the column", ("column",), dtype="str"),
    Variable(
        "value",
        "the number; NaN unless it is ok",
        ("row", "column"),
        units="as the column",
    ),
    Variable(
        "cell",
        "ok, diverged, nonfinite or missing",
        ("row", "column"),
        dtype="str",
    ),
    Variable(
        "wide",
        "the same as a file: a line per row, a column per column",
        ("byte",),
        dtype="uint8",
        bulk=True,
        file=".wide.csv",
    ),
)
