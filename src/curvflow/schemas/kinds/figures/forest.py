"""Declaration of `figure.forest`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, model_validator

from curvflow.schemas.explanations import REPEATED, Explanation
from curvflow.schemas.kind import Input, Kind, ParamProblem, Variable
from curvflow.schemas.kinds.aggregate.compare import CompareParams
from curvflow.schemas.kinds.shared.figures import PICTURES, FigureParams
from curvflow.schemas.kinds.shared.tables import OneOrMoreNames
from curvflow.schemas.nodes import Figure, Table

UNITS = "as the quantity"


class ForestParams(FigureParams):
    """Differences that are drawn, and their labels."""

    quantities: OneOrMoreNames | None = Field(
        None,
        description="variables compared, a panel for each; null takes all of the table",
    )
    label: str | None = Field(
        None, description="axis of the tables whose labels differ in colour"
    )
    interval: Literal["t", "bootstrap"] = Field(
        "t", description="t: Student's or Welch's; bootstrap: by resampling"
    )
    test: Literal["t", "rank", "none"] = Field(
        "t",
        description="whose p, corrected by Holm, is printed, and fills a mark if it is "
        "below 1 - confidence; none prints n alone",
    )
    confidence: float = Field(
        0.95, gt=0, lt=1, description="that of the table, which the caption states"
    )

    @model_validator(mode="after")
    def _one_part_each(self) -> ForestParams:
        self.refuse_one_name_twice(label=self.label)
        return self


def _lacking(params: ForestParams, stage: str, taken: Any) -> Iterator[ParamProblem]:
    if not isinstance(taken, CompareParams):
        message = f"expected a stage of aggregate.compare, got '{stage}'"
        yield ("of",), message, "Differences are what it draws."
        return
    if taken.confidence != params.confidence:
        message = (
            f"expected the confidence of '{stage}', {taken.confidence:g}, got "
            f"{params.confidence:g}"
        )
        yield ("confidence",), message, f"Write {taken.confidence:g}."


def _number(name: str, description: str, units: str = UNITS) -> Variable:
    return Variable(name, description, ("difference",), units=units)


def _count(name: str, description: str) -> Variable:
    return Variable(name, description, ("difference",), dtype="int64")


KIND = Kind(
    name="figure.forest",
    version=1,
    summary="Differences from a baseline with intervals, one below another.",
    params=ForestParams,
    returns=Figure,
    outputs=(
        *PICTURES,
        Variable("difference", "what is drawn", ("difference",), dtype="str"),
        Variable("panel", "variable compared", ("difference",), dtype="str"),
        _number("mean", "mean difference; NaN without pairs"),
        _number("low", "lower end of the interval; NaN without one"),
        _number("high", "upper end of the interval; NaN without one"),
        _number("p", "corrected by Holm; NaN without a test", "1"),
        _count("count", "pairs, or values of the label, n"),
        _count("diverged", "pairs, or nodes, that diverged; in no difference"),
        _count("nonfinite", "those with NaN or infinity"),
        _count("missing", "those of which one side is not there"),
    ),
    inputs={"of": Input(Table, many=True, lacking=_lacking)},
    reduces=("over", "label"),
    vectorised=False,
)

EXPLANATION = Explanation(
    formula=(
        "the differences of aggregate.compare: mean, interval, n and p, beside the "
        "line at zero"
    ),
    source="that of aggregate.compare",
    cost="none: stored statistics are drawn",
    example=REPEATED
    + """\
  compared: {use: aggregate.compare, of: fit, along: rule, baseline: sgd,
             over: seed, quantities: final_test_loss}
  forest: {use: figure.forest, of: compared}
""",
    page="figures.md#comparisons-over-axes",
)
