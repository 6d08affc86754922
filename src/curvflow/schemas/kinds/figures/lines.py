"""Declaration of `figure.lines`."""

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
    MarkUnconverged,
    Selection,
)
from curvflow.schemas.nodes import Figure, Numbers

Band = Literal["ci95", "sem", "sd", "range", "none"]


class LinesParams(FigureParams):
    """Variables of both axes."""

    y: str = Field(description="variable whose mean is drawn")
    x: str = Field(
        "epoch", description="dimension of y, or axis, that it is drawn against"
    )
    select: Selection
    band: Band = Field(
        "ci95",
        description="ci95: Student's 95 % interval of the mean; sem, sd: the mean -+ "
        "one; range: least to greatest; none",
    )
    log_x: bool = Field(False, description="logarithmic x axis")
    log_y: bool = Field(False, description="logarithmic y axis")
    unconverged: MarkUnconverged = "mark"

    @model_validator(mode="after")
    def _one_part_each(self) -> LinesParams:
        self.refuse_one_name_twice(x=self.x, label=self.label)
        self.refuse_selected(self.select, x=self.x, label=self.label)
        return self


def _check_names(params: LinesParams, taken: Taken) -> Iterator[ParamProblem]:
    along = [params.label, params.x, *params.select]
    roles = "`label`, `x` or `select`"
    yield from unknown_selection(params.select, [params.y], taken)
    yield from not_single("y", [params.y], taken, along=along, roles=roles)


def _curve(name: str, description: str) -> Variable:
    return Variable(name, description, ("curve", "x"), units=UNITS, series=True)


KIND = Kind(
    name="figure.lines",
    version=6,
    summary="A curve of means with a band, for each label of an axis.",
    params=LinesParams,
    returns=Figure,
    outputs=(
        *PICTURES,
        Variable("curve", "label of each curve", ("curve",), dtype="str"),
        Variable(
            "diverged",
            "nodes that diverged; they are in no curve",
            ("curve",),
            dtype="int64",
        ),
        Variable(
            "x",
            "where the curves have points; 0, 1, 2, ... for labels that are text",
            ("x",),
            units="as x",
            series=True,
        ),
        Variable("x_label", "the same as text", ("x",), dtype="str", series=True),
        _curve("mean", "mean of y; NaN without values"),
        _curve("low", "lower edge of the band; NaN without one"),
        _curve("high", "upper edge of the band; NaN without one"),
        Variable(
            "count",
            "finite values averaged, n",
            ("curve", "x"),
            dtype="int64",
            series=True,
        ),
        Variable(
            "unconverged",
            "those of them that are not converged",
            ("curve", "x"),
            dtype="int64",
            series=True,
        ),
    ),
    inputs={"of": Input(Numbers, many=True)},
    reduces=("over", "label", "x"),
    selects=("y",),
    check_names=_check_names,
    judges=True,
    settings=HOLD,
    vectorised=False,
)

EXPLANATION = Explanation(
    formula=(
        "ȳ(x) of each label, with a band ȳ ± t(n - 1) · sem, sem, sd or from least "
        "to greatest"
    ),
    source="Student (1908), doi:10.1093/biomet/6.1.1, for ci95",
    cost="none: stored numbers are drawn",
    example=REPEATED
    + """\
  curves: {use: figure.lines, of: fit, y: train_loss, label: rule, over: seed,
           log_y: true}
""",
    page="study.md#statistics-and-figures",
    units={"select": "as the dimension"},
)
