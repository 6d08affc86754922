"""Declaration of `aggregate.summary`."""

from __future__ import annotations

from pydantic import Field

from curvflow.schemas.kind import Input, Kind
from curvflow.schemas.names import OneOrMoreNames
from curvflow.schemas.nodes import Numbers, Table
from curvflow.schemas.params import Params
from curvflow.schemas.variables import Variable

UNITS = "as the quantity"


class SummaryParams(Params):
    """What is averaged, and over which axes."""

    over: OneOrMoreNames = Field(
        min_length=1, description="axes reduced over, one or several"
    )
    quantities: OneOrMoreNames | None = Field(
        None, description="variables; null takes all numbers that tables hold"
    )
    confidence: float = Field(
        0.95, gt=0, lt=1, description="coverage of the interval from low to high"
    )


def _column(name: str, description: str) -> Variable:
    return Variable(name, description, ("quantity",), units=UNITS)


def _count(name: str, description: str) -> Variable:
    return Variable(name, description, ("quantity",), dtype="int64")


KIND = Kind(
    name="aggregate.summary",
    version=1,
    summary="Mean, spread and interval of measured quantities over axes.",
    params=SummaryParams,
    returns=Table,
    outputs=(
        Variable(
            "quantity",
            "what was measured: variable, with the stage's name before it if several "
            "stages have it and the element's label behind it if it has several",
            ("quantity",),
            dtype="str",
        ),
        Variable("units", "units of the quantity", ("quantity",), dtype="str"),
        _column("mean", "mean of the values counted"),
        _column("sd", "standard deviation of the values, n - 1"),
        _column("sem", "standard error of the mean"),
        _column("low", "lower limit of Student's interval for the mean"),
        _column("high", "upper limit of Student's interval for the mean"),
        _count("count", "values, n: finite ones of nodes that did not diverge"),
        _count("diverged", "nodes that diverged; none of their values is used"),
        _count("nonfinite", "NaN and infinities of other nodes; left out too"),
    ),
    inputs={"of": Input(Numbers, many=True)},
    reduces=("over",),
    selects=("quantities",),
    vectorised=False,
)
