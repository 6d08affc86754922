"""Declaration of `figure.vectors`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.kinds.shared.figures import PICTURES, FigureParams
from curvflow.schemas.nodes import Figure, Weights


class VectorsParams(FigureParams):
    """Weights drawn as arrows, and the axis of the panels."""

    label: str | None = Field(None, description="axis whose labels have a panel each")
    tensor: str = Field(
        "layer1.weight",
        description="name of a parameter tensor whose rows have two entries, or the "
        "beginning of the names of several",
    )
    show: Literal["all", "first"] = Field(
        "all", description="networks in a panel: all of `over`, or the first"
    )
    limits: Literal["equal", "own"] = Field(
        "equal", description="scales: equal in all panels, or each panel's own"
    )

    @model_validator(mode="after")
    def _one_part_each(self) -> VectorsParams:
        self.refuse_one_name_twice(label=self.label)
        return self


def _text(name: str, description: str) -> Variable:
    return Variable(name, description, ("vector",), dtype="str")


KIND = Kind(
    name="figure.vectors",
    version=3,
    summary="Weights of two inputs as arrows, such as those of XOR's hidden units.",
    params=VectorsParams,
    returns=Figure,
    outputs=(
        *PICTURES,
        Variable("panel", "label of each panel", ("panel",), dtype="str"),
        Variable("networks", "networks drawn", ("panel",), dtype="int64"),
        Variable(
            "diverged",
            "networks that diverged; none of them is drawn",
            ("panel",),
            dtype="int64",
        ),
        _text("label", "panel of each arrow"),
        _text("network", "labels of its network"),
        _text("unit", "parameter tensor, and row in it"),
        Variable("first", "its first weight", ("vector",), units="parameter"),
        Variable("second", "its second weight", ("vector",), units="parameter"),
    ),
    inputs={"weights": Input(Weights, many=True)},
    reduces=("over", "label"),
    vectorised=False,
)

EXPLANATION = Explanation(
    formula="an arrow from 0 to (w₁, w₂) for each row of the tensor",
    source="none: the weights as they are",
    cost="none: stored weights are drawn",
    example="""\
study: example
stages:
  xor: {use: data.xor}
  fit: {use: train, data: xor,
        model: {kind: mlp, hidden: [8], activation: tanh},
        rule: {rule: sgd, lr: 0.1}, epochs: 200}
  units: {use: figure.vectors, weights: fit}
""",
    page="study.md#statistics-and-figures",
)
