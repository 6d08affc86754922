"""Declaration of `figure.landscape`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.kinds.shared.figures import PICTURES, FigureParams
from curvflow.schemas.nodes import Figure, Landscape


class LandscapeFigureParams(FigureParams):
    """Lines or planes, and drawings over them."""

    label: str | None = Field(None, description="axis whose labels have a row each")
    show: Literal["lines", "plane"] = Field(
        "lines",
        description="lines: a panel for each direction; plane: contours, a panel for "
        "training and one for test samples",
    )
    y: Literal["loss", "accuracy"] = Field("loss", description="what lines show")
    quadratic: bool = Field(
        True, description="draw the quadratic model of the training loss over it"
    )
    log_y: bool = Field(False, description="logarithmic axis, or contours, of losses")
    limits: Literal["equal", "own"] = Field(
        "own", description="scales: equal in all panels, or each panel's own"
    )

    @model_validator(mode="after")
    def _one_part_each(self) -> LandscapeFigureParams:
        self.refuse_one_name_twice(label=self.label)
        return self


def _line(name: str, description: str) -> Variable:
    return Variable(name, description, ("line", "point"), units="as y", series=True)


KIND = Kind(
    name="figure.landscape",
    version=3,
    summary="Losses along lines or in a plane, with the quadratic model.",
    params=LandscapeFigureParams,
    returns=Figure,
    outputs=(
        *PICTURES,
        Variable("row", "label of each line", ("line",), dtype="str"),
        Variable("along", "direction of each line", ("line",), dtype="str"),
        Variable("node", "labels of its node", ("line",), dtype="str"),
        _line("step", "where it has points; NaN behind the last"),
        _line("train", "of the training samples"),
        _line("test", "of the test samples; NaN without any"),
        _line("model", "quadratic model of the training loss; NaN for accuracies"),
    ),
    inputs={"of": Input(Landscape, many=True)},
    reduces=("over", "label"),
    vectorised=False,
)

EXPLANATION = Explanation(
    formula="the losses of probe.landscape, and L(w) + t g.d + t² d.Hd / 2",
    source="that of probe.landscape",
    cost="none: stored losses are drawn",
    example=TRAINED
    + """\
  slices: {use: probe.landscape, weights: fit, directions: random,
           num_points: 11}
  lines: {use: figure.landscape, of: slices}
""",
    page="figures.md#slices-of-the-loss",
)
