"""Declaration of `figure.bars`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, model_validator

from curvflow.schemas.checks.name_checks import not_single, unknown_selection
from curvflow.schemas.explanations import REPEATED, Explanation
from curvflow.schemas.kind import Input, Kind, ParamProblem, Taken, Variable
from curvflow.schemas.kinds.shared.figures import (
    HOLD,
    PICTURES,
    UNITS,
    FigureParams,
    Selection,
    ShowUnconverged,
)
from curvflow.schemas.kinds.shared.tables import OneOrMoreNames
from curvflow.schemas.nodes import Figure, Numbers

ErrorBar = Literal["ci95", "sem", "sd", "none"]


class BarsParams(FigureParams):
    """Quantity that is compared."""

    y: OneOrMoreNames = Field(
        min_length=1, description="variables whose means are drawn, a panel for each"
    )
    select: Selection
    error: ErrorBar = Field(
        "ci95",
        description="ci95: Student's 95 % interval of the mean; sem, sd: the mean -+ "
        "one; none",
    )
    points: bool = Field(False, description="draw the single values too")
    log_y: bool = Field(
        False,
        description="logarithmic axis of values; it has no zero where bars could "
        "start, so dots take their place",
    )
    unconverged: ShowUnconverged = "show"

    @model_validator(mode="after")
    def _one_part_each(self) -> BarsParams:
        self.refuse_one_name_twice(label=self.label)
        self.refuse_selected(self.select, label=self.label)
        if len(set(self.y)) < len(self.y):
            raise ValueError(
                f"expected y without repetitions, got {', '.join(self.y)}. "
                "Name each variable once."
            )
        return self


def _check_names(params: BarsParams, taken: Taken) -> Iterator[ParamProblem]:
    along, roles = [params.label, *params.select], "`label` or `select`"
    yield from unknown_selection(params.select, params.y, taken)
    yield from not_single("y", params.y, taken, along=along, roles=roles)


def _statistic(name: str, description: str) -> Variable:
    return Variable(name, description, ("quantity", "label"), units=UNITS)


def _count(name: str, description: str) -> Variable:
    return Variable(name, description, ("quantity", "label"), dtype="int64")


KIND = Kind(
    name="figure.bars",
    version=3,
    summary="Means with error bars, one bar for each label of an axis.",
    params=BarsParams,
    returns=Figure,
    outputs=(
        *PICTURES,
        Variable("quantity", "variable of each panel", ("quantity",), dtype="str"),
        Variable("label", "label of each bar", ("label",), dtype="str"),
        _statistic("mean", "mean of y; NaN without values"),
        _statistic("low", "lower end of the error bar; NaN without one"),
        _statistic("high", "upper end of the error bar; NaN without one"),
        _count("count", "finite values averaged, n"),
        _count("diverged", "nodes that diverged; none of their values is used"),
    ),
    inputs={"of": Input(Numbers, many=True)},
    reduces=("over", "label"),
    selects=("y",),
    check_names=_check_names,
    judges=True,
    settings=HOLD,
    vectorised=False,
)

EXPLANATION = Explanation(
    formula="ȳ of each label, with ȳ ± t(n - 1) · sem, sem or sd",
    source="Student (1908), doi:10.1093/biomet/6.1.1, for ci95",
    cost="none: stored numbers are drawn",
    example=REPEATED
    + """\
  bars: {use: figure.bars, of: fit, y: final_test_loss, label: rule,
         over: seed}
""",
    page="study.md#statistics-and-figures",
    units={"select": "as the dimension"},
)
