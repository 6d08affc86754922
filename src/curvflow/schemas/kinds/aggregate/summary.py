"""Declaration of `aggregate.summary`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from curvflow.schemas.explanations import REPEATED, Explanation
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.kinds.shared.tables import (
    OneOrMoreNames,
    Unconverged,
    failed,
    unconverged,
)
from curvflow.schemas.nodes import Numbers, Table
from curvflow.schemas.params import Floats, Neutral, Params

UNITS = "as the quantity"

Further = Literal[
    "median",
    "min",
    "max",
    "geometric_mean",
    "interquartile_mean",
    "mad",
    "missing",
]


class SummaryParams(Params):
    """Quantities that are averaged, and the axes averaged over."""

    over: OneOrMoreNames = Field(
        description="axes reduced over, one or several, or [] for a table of each node"
    )
    quantities: OneOrMoreNames | None = Field(
        None,
        description="variables; main takes what the kinds declare to be their result, "
        "null all numbers that tables hold",
    )
    confidence: float = Field(
        0.95, gt=0, lt=1, description="coverage of the interval from low to high"
    )
    statistics: Annotated[
        tuple[Further, ...], Neutral(()), Field(strict=False, validate_default=False)
    ] = Field(
        (),
        description="further columns. geometric_mean: of positive values; "
        "interquartile_mean: of the middle half; mad: median absolute deviation from "
        "the median; missing: nodes without such a value",
    )
    quantiles: Annotated[Floats, Neutral(())] = Field(
        (), description="shares of values below, ascending, such as [0.05, 0.95]"
    )
    interval: Annotated[Literal["t", "bootstrap"], Neutral("t")] = Field(
        "t",
        description="t: Student's, for mean and, of the logarithms, geometric mean; "
        "bootstrap: by resampling, also for the other statistics and for quantiles",
    )
    bootstrap: Annotated[Literal["bca", "percentile"], Neutral("bca")] = Field(
        "bca",
        description="interval by resampling: bias-corrected and accelerated, or not",
    )
    num_resamples: Annotated[int, Neutral(9999)] = Field(
        9999, ge=100, description="samples of the bootstrap"
    )
    seed: Annotated[int, Neutral(0)] = Field(0, ge=0, description="seed of it")
    unconverged: Unconverged = "count"

    @model_validator(mode="after")
    def _ascending_shares(self) -> SummaryParams:
        shares = self.quantiles
        if list(shares) != sorted(set(shares)) or any(not 0 < q < 1 for q in shares):
            raise ValueError(
                "expected quantiles above 0 and below 1, ascending, got "
                f"{', '.join(map(str, shares))}. Least and greatest values are the "
                "statistics min and max."
            )
        return self


def _column(name: str, description: str) -> Variable:
    return Variable(name, description, ("quantity",), units=UNITS)


def _further(name: str, description: str) -> Variable:
    return Variable(name, description, ("quantity",), units=UNITS, optional=True)


def _limits(name: str, of: str) -> tuple[Variable, Variable]:
    return (
        _further(f"{name}_low", f"lower limit of the interval for the {of}"),
        _further(f"{name}_high", f"upper limit of the interval for the {of}"),
    )


def _count(name: str, description: str, *, optional: bool = False) -> Variable:
    return Variable(name, description, ("quantity",), dtype="int64", optional=optional)


def _quantile(name: str, description: str) -> Variable:
    dims = ("quantity", "quantile")
    return Variable(name, description, dims, units=UNITS, optional=True)


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
        _column("low", "lower limit of the interval for the mean"),
        _column("high", "upper limit of the interval for the mean"),
        _further("median", "median"),
        *_limits("median", "median"),
        _further("min", "least value"),
        _further("max", "greatest value"),
        _further("geometric_mean", "exp of the mean logarithm; NaN unless all are > 0"),
        *_limits("geometric_mean", "geometric mean"),
        _further("interquartile_mean", "mean without a quarter of values either side"),
        *_limits("interquartile_mean", "interquartile mean"),
        _further("mad", "median absolute deviation from the median"),
        *_limits("mad", "median absolute deviation"),
        _count("count", "values, n: finite ones of nodes that did not diverge"),
        _count("diverged", "nodes that diverged; none of their values is used"),
        _count("nonfinite", "NaN and infinities of other nodes; left out too"),
        _count("missing", "other nodes that have no such value", optional=True),
        unconverged("values, of nodes that did not diverge, that are not converged"),
        Variable("quantile", "share of values below", ("quantile",), optional=True),
        _quantile("value_at", "value that the share lies below, interpolated"),
        _quantile("value_at_low", "lower limit of its interval"),
        _quantile("value_at_high", "upper limit of its interval"),
        failed(),
    ),
    inputs={"of": Input(Numbers, many=True)},
    reduces=("over",),
    selects=("quantities",),
    judges=True,
    vectorised=False,
)

EXPLANATION = Explanation(
    formula="ȳ = Σ yᵢ / n, sem = sd / √n, interval ȳ ± t(n - 1) · sem",
    source=(
        "Student (1908), doi:10.1093/biomet/6.1.1; Hyndman and Fan (1996), "
        "definition 7, for quantiles; Efron (1987), doi:10.2307/2289144, for the "
        "bootstrap"
    ),
    cost=(
        "none: stored numbers are read, and resampled num_resamples times with "
        "interval: bootstrap"
    ),
    example=REPEATED
    + """\
  table: {use: aggregate.summary, of: fit, over: seed,
          quantities: [final_test_loss, final_test_accuracy]}
""",
    page="statistics.md#summary",
)
