"""Declaration of `aggregate.select`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, model_validator

from curvflow.errors import nearest
from curvflow.schemas.checks.name_checks import unknown_label
from curvflow.schemas.explanations import REPEATED, Explanation
from curvflow.schemas.kind import Axes, Input, Kind, ParamProblem, Taken, Variable
from curvflow.schemas.kinds.shared.tables import OUTPUTS, SideBySide
from curvflow.schemas.nodes import Label, Numbers, Table
from curvflow.schemas.params import Params

Labels = Annotated[tuple[Label, ...], Field(min_length=1, strict=False)]


class Condition(Params):
    """Conditions on a number; all that are given must hold."""

    above: float | None = Field(None, description="it is greater than this")
    below: float | None = Field(None, description="it is less than this")
    equals: float | None = Field(None, description="it is this; true is 1")

    @model_validator(mode="after")
    def _says_something(self) -> Condition:
        if self.above is None and self.below is None and self.equals is None:
            raise ValueError(
                "expected above, below or equals, got none. Say what must hold."
            )
        return self


class SelectParams(SideBySide):
    """Rows and columns that are kept."""

    at: dict[str, Label | Labels] = Field(
        default_factory=dict, description="axis of rows to the label or labels kept"
    )
    where: dict[str, Condition] = Field(
        default_factory=dict,
        description="column to the condition that its cell must meet; a cell that is "
        "not ok meets none, and its row is counted",
    )

    @model_validator(mode="after")
    def _labels_of_rows(self) -> SelectParams:
        if not self.at and not self.where and self.quantities is None:
            raise ValueError(
                "expected at, where or quantities, got none. Say what is selected."
            )
        for axis in self.at:
            if axis not in self.rows:
                raise ValueError(
                    f"expected at to name axes of rows, got '{axis}'. "
                    f"{nearest(axis, self.rows)}"
                )
        return self


def _check_names(params: SelectParams, taken: Taken) -> Iterator[ParamProblem]:
    known = {v.name for kind in taken["of"].values() for v in kind.chosen()}
    known |= set(params.quantities or ())
    for column in params.where:
        name = column.partition("[")[0].rpartition(".")[2]
        if name not in known:
            message = f"expected a column of the table, got '{column}'"
            yield ("where", column), message, nearest(column, known)


def _check_axes(params: SelectParams, axes: Axes) -> Iterator[ParamProblem]:
    """Yield labels that the axes do not have."""
    for axis, given in params.at.items():
        if not isinstance(given, tuple):
            yield from unknown_label(("at", axis), axis, given, axes)
            continue
        for number, label in enumerate(given):
            yield from unknown_label(("at", axis, number), axis, label, axes)


KIND = Kind(
    name="aggregate.select",
    version=1,
    summary="Rows and columns of results, at labels or where a condition holds.",
    params=SelectParams,
    returns=Table,
    outputs=(
        *OUTPUTS,
        Variable("num_rows", "rows there were", dtype="int64"),
        Variable("num_kept", "rows kept", dtype="int64"),
        Variable(
            "num_undecided",
            "rows left out because a cell of a condition is not ok",
            dtype="int64",
        ),
    ),
    inputs={"of": Input(Numbers, many=True)},
    reduces=("rows",),
    check_axes=_check_axes,
    selects=("quantities",),
    check_names=_check_names,
    vectorised=False,
)

EXPLANATION = Explanation(
    formula=(
        "the rows of a joined table at the labels of `at`, where all conditions of "
        "`where` hold"
    ),
    source="none: numbers as they are",
    cost="none: stored numbers are read",
    example=REPEATED
    + """\
  good: {use: aggregate.select, of: fit, rows: [rule, seed],
         quantities: [final_test_loss, final_test_accuracy],
         where: {final_test_accuracy: {above: 0.2}}}
""",
    page="statistics.md#join-and-select",
    units={
        "at": "as the axis",
        "where.above": "as the quantity",
        "where.below": "as the quantity",
        "where.equals": "as the quantity",
    },
)
