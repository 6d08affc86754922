"""Declaration of `figure.scatter`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from curvflow.schemas.explanations import REPEATED, Explanation
from curvflow.schemas.kind import STAGE, Input, Kind, Variable
from curvflow.schemas.kinds.shared.figures import (
    HOLD,
    PICTURES,
    FigureParams,
    MarkUnconverged,
)
from curvflow.schemas.kinds.shared.tables import OneOrMoreNames
from curvflow.schemas.nodes import Figure, Numbers

ErrorBar = Literal["ci95", "sem", "sd", "none"]


class ScatterParams(FigureParams):
    """Variables of both axes, and the axes whose nodes are points."""

    x: str | dict[str, str] = Field(
        description="variable drawn to the right, a number per node; a mapping has one "
        "for each stage"
    )
    y: str | dict[str, str] = Field(description="variable drawn upwards, likewise")
    marker: str | None = Field(
        None,
        description="axis whose labels differ in the shape of points; here, in "
        "label or in each, `stage` makes every stage a series of its own",
    )
    each: OneOrMoreNames | None = Field(
        None,
        description="further axes each of whose labels has a point, such as a seed "
        "that is not averaged over",
    )
    error: ErrorBar = Field(
        "ci95",
        description="of means over `over`. ci95: Student's 95 % interval of the mean; "
        "sem, sd: the mean -+ one; none",
    )
    normalise: Literal["none", "max"] = Field(
        "none", description="max: both axes are divided by their largest magnitude"
    )
    within: OneOrMoreNames | None = Field(
        None,
        description="axes within each of whose labels the largest is taken; null takes "
        "it over the figure",
    )
    lower_is_better: bool | OneOrMoreNames = Field(
        False,
        description="y is normalised as 1 - y / max|y|, so that 1 is best; names of "
        "stages for theirs alone",
    )
    line: bool = Field(
        False, description="draw the least-squares line, on the scales of the axes"
    )
    correlation: bool = Field(
        False, description="state Spearman's rank correlation with its 95 % interval"
    )
    log_x: bool = Field(False, description="logarithmic x axis")
    log_y: bool = Field(False, description="logarithmic y axis")
    unconverged: MarkUnconverged = "mark"

    @model_validator(mode="after")
    def _one_part_each(self) -> ScatterParams:
        self.refuse_one_name_twice(label=self.label, marker=self.marker)
        for name in self.each or ():
            self.refuse_one_name_twice(label=self.label, marker=self.marker, each=name)
        return self

    @model_validator(mode="after")
    def _normalised_as_asked(self) -> ScatterParams:
        if self.normalise == "none":
            for name in ("within", "lower_is_better"):
                if getattr(self, name):
                    raise ValueError(
                        f"{name} cannot be combined with normalise none. Set "
                        f"normalise: max, or remove {name}."
                    )
        for name in self.within or ():
            if name not in self.parts:
                raise ValueError(
                    f"expected within to name axes of label, marker or each, got "
                    f"'{name}'. Name it in one of these, or leave it out."
                )
        return self

    @model_validator(mode="after")
    def _stages_told_apart(self) -> ScatterParams:
        for name in ("x", "y", "lower_is_better"):
            if isinstance(getattr(self, name), str | bool):
                continue
            if STAGE not in self.parts:
                raise ValueError(
                    f"expected label, marker or each to name 'stage' with {name} per "
                    f"stage, got {', '.join(self.parts) or 'none of them'}. Add it "
                    "there, so that stages can be distinguished."
                )
            if self.normalise == "max" and STAGE not in (self.within or ()):
                raise ValueError(
                    f"expected within to name 'stage' with {name} per stage, got "
                    f"{', '.join(self.within or ()) or 'null'}. Add it there: "
                    "different variables have no common largest."
                )
        return self

    @property
    def parts(self) -> tuple[str, ...]:
        """The axes each of whose labels has separate points."""
        named = (self.label, self.marker, *(self.each or ()))
        return tuple(name for name in named if name is not None)


def _number(name: str, description: str) -> Variable:
    return Variable(name, description, ("point",), units="as drawn")


def _count(name: str, description: str) -> Variable:
    return Variable(name, description, ("point",), dtype="int64")


def _end(axis: str, side: str) -> Variable:
    return _number(f"{axis}_{side}", f"{side} end of the error bar; NaN without one")


KIND = Kind(
    name="figure.scatter",
    version=4,
    summary="One measured number against another, a point for each node or mean.",
    params=ScatterParams,
    returns=Figure,
    outputs=(
        *PICTURES,
        Variable("point", "labels of each point", ("point",), dtype="str"),
        Variable("label", "label shown by colour", ("point",), dtype="str"),
        Variable("shape", "label shown by shape", ("point",), dtype="str"),
        _number("x", "x, or its mean; NaN without values"),
        _end("x", "low"),
        _end("x", "high"),
        _number("y", "y, or its mean; NaN without values"),
        _end("y", "low"),
        _end("y", "high"),
        _count("count", "nodes averaged, n, whose x and y are finite"),
        _count("unconverged", "those of them whose x or y is not converged"),
        _count("diverged", "nodes that diverged; none of their values is used"),
        Variable(
            "slope", "of the least-squares line, on the axes' scales; NaN without"
        ),
        Variable("intercept", "of the least-squares line; NaN without"),
        Variable("spearman", "rank correlation of the points drawn; NaN if undefined"),
        Variable("spearman_low", "lower limit of its 95 % interval"),
        Variable("spearman_high", "upper limit of its 95 % interval"),
    ),
    inputs={"of": Input(Numbers, many=True)},
    reduces=("over", "label", "marker", "each"),
    selects=("x", "y"),
    per_stage=("x", "y", "lower_is_better"),
    judges=True,
    settings=HOLD,
    vectorised=False,
)

EXPLANATION = Explanation(
    formula=(
        "a point (x̄, ȳ) for each label, with error bars; the least-squares line; "
        "Spearman's ρ with its 95 % interval"
    ),
    source="none: least squares and ranks, as written",
    cost="none: stored numbers are drawn",
    example=REPEATED
    + """\
  points: {use: figure.scatter, of: fit, x: norm_tensor_sum,
           y: final_test_loss,
           label: rule, each: seed, correlation: true}
""",
    page="study.md#statistics-and-figures",
)
