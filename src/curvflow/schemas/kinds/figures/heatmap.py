"""Declaration of `figure.heatmap`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from curvflow.schemas.checks.name_checks import not_single
from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Input, Kind, ParamProblem, Taken, Variable
from curvflow.schemas.kinds.shared.figures import (
    HOLD,
    PICTURES,
    FigureParams,
    ShowUnconverged,
)
from curvflow.schemas.nodes import Figure, Numbers
from curvflow.schemas.params import Neutral

CELL = ("panel", "y", "x")


class HeatmapParams(FigureParams):
    """Quantity of the colours, and the two axes."""

    z: str = Field(
        description="variable whose mean is drawn, a number per node, or one with the "
        "dimensions that x, y and label name"
    )
    x: str = Field(description="axis to the right")
    y: str = Field(description="axis upwards, or downwards if its labels are text")
    label: str | None = Field(None, description="axis whose labels have a panel each")
    log_z: bool = Field(False, description="logarithmic colours")
    numbers: bool = Field(
        True, description="print the means in the cells, where all of them have room"
    )
    order: Annotated[Literal["study", "distance"], Neutral("study")] = Field(
        "study",
        description="of labels: study, as they are; distance, where z are distances of "
        "the labels of both axes, so that near ones stand together",
    )
    unconverged: ShowUnconverged = "show"

    @model_validator(mode="after")
    def _one_part_each(self) -> HeatmapParams:
        self.refuse_one_name_twice(x=self.x, y=self.y, label=self.label)
        return self


def _check_names(params: HeatmapParams, taken: Taken) -> Iterator[ParamProblem]:
    along = [params.x, params.y, params.label]
    yield from not_single("z", [params.z], taken, along=along)


def _count(name: str, description: str) -> Variable:
    return Variable(name, description, CELL, dtype="int64")


KIND = Kind(
    name="figure.heatmap",
    version=1,
    summary="Means over two axes as colours, a panel for each label of a third.",
    params=HeatmapParams,
    returns=Figure,
    outputs=(
        *PICTURES,
        Variable("panel", "label of each panel", ("panel",), dtype="str"),
        Variable("x", "labels to the right", ("x",), dtype="str"),
        Variable("y", "labels upwards or downwards", ("y",), dtype="str"),
        Variable("mean", "mean of z; NaN without values", CELL, units="as z"),
        _count("count", "finite values averaged, n"),
        _count("diverged", "nodes that diverged; none of their values is used"),
        _count("nonfinite", "NaN and infinities of other nodes; left out too"),
        _count("nodes", "nodes there are"),
    ),
    inputs={"of": Input(Numbers, many=True)},
    reduces=("over", "x", "y", "label"),
    selects=("z",),
    check_names=_check_names,
    judges=True,
    settings=HOLD,
    vectorised=False,
)

EXPLANATION = Explanation(
    formula="z̄(x, y) over two axes, a panel for each label of a third",
    source="none: means, as written",
    cost="none: stored numbers are drawn",
    example="""\
study: example
axes: {seed: 3, size: [50, 200], eta: [0.03, 0.1]}
stages:
  digits: {use: data.digits, num_train: "${size}"}
  fit: {use: train, data: digits, model: {kind: mlp, hidden: [8]},
        rule: {rule: sgd, lr: "${eta}"}, seed: "${seed}", epochs: 5}
  heat: {use: figure.heatmap, of: fit, z: final_test_loss, x: size, y: eta,
         over: seed}
""",
    page="figures.md#comparisons-over-axes",
)
