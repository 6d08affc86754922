"""Declaration of `figure.scaling`."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field, model_validator

from curvflow.schemas.checks.name_checks import text_labels
from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Axes, Input, Kind, ParamProblem, Variable
from curvflow.schemas.kinds.shared.figures import HOLD, PICTURES, FigureParams
from curvflow.schemas.kinds.shared.tables import ScalingLaw, check_names
from curvflow.schemas.nodes import Figure, Numbers


class ScalingFigureParams(FigureParams, ScalingLaw):
    """Quantity that a law is fitted to, and drawings next to it."""

    band: bool = Field(True, description="draw Student's interval of the law at each x")
    crossovers: bool = Field(
        True, description="mark and state where laws cross inside the x of both"
    )

    @model_validator(mode="after")
    def _one_part_each(self) -> ScalingFigureParams:
        self.refuse_one_name_twice(along=self.along, label=self.label)
        return self


def _point(name: str, description: str, units: str) -> Variable:
    return Variable(name, description, ("point",), units=units, series=True)


def _law(name: str, description: str) -> Variable:
    return Variable(name, description, ("law",))


def _count(name: str, description: str) -> Variable:
    return Variable(name, description, ("law",), dtype="int64")


def _check_axes(params: ScalingFigureParams, axes: Axes) -> Iterator[ParamProblem]:
    """Yield labels of the sizes that are no numbers."""
    return text_labels(params, "along", axes)


KIND = Kind(
    name="figure.scaling",
    version=1,
    summary="Power laws through points on logarithmic axes, and where they cross.",
    params=ScalingFigureParams,
    returns=Figure,
    outputs=(
        *PICTURES,
        Variable("law", "label of each law", ("law",), dtype="str"),
        _law("exponent", "slope of log y on log x"),
        _law("low", "lower limit of Student's interval for it"),
        _law("high", "upper limit of it"),
        Variable("prefactor", "y of the law at x = 1", ("law",), units="as y"),
        _count("count", "points fitted, n"),
        _count("diverged", "nodes that diverged; they are no points"),
        _count("nonpositive", "points that are not above 0; left out"),
        _count("nonfinite", "those with NaN or infinity; left out"),
        Variable(
            "point_label", "label of each point", ("point",), dtype="str", series=True
        ),
        _point("x", "x of each point", "as x"),
        _point("y", "y of each point", "as y"),
    ),
    inputs={"of": Input(Numbers, many=True)},
    reduces=("along", "over", "each", "label"),
    check_axes=_check_axes,
    selects=("y", "x"),
    check_names=check_names,
    judges=True,
    settings=HOLD,
    vectorised=False,
)

EXPLANATION = Explanation(
    formula=(
        "the points and laws of aggregate.scaling on logarithmic axes, with "
        "Student's interval of the line"
    ),
    source="that of aggregate.scaling",
    cost="none: stored numbers are fitted and drawn",
    example="""\
study: example
axes: {seed: 3, size: [50, 100, 200]}
stages:
  digits: {use: data.digits, num_train: "${size}"}
  fit: {use: train, data: digits, model: {kind: mlp, hidden: [8]},
        rule: {rule: sgd, lr: 0.1}, seed: "${seed}", epochs: 5}
  law: {use: figure.scaling, of: fit, y: final_test_loss, along: size,
        over: seed}
""",
    page="figures.md#comparisons-over-axes",
)
