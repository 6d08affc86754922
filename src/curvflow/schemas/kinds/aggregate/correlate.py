"""Declaration of `aggregate.correlate`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from curvflow.schemas.checks.name_checks import not_single
from curvflow.schemas.explanations import REPEATED, Explanation
from curvflow.schemas.kind import Input, Kind, ParamProblem, Taken, Variable
from curvflow.schemas.kinds.shared.tables import (
    OneOrMoreNames,
    Unconverged,
    failed,
    unconverged,
)
from curvflow.schemas.nodes import Numbers, Table
from curvflow.schemas.params import Names, Params

Coefficient = Literal["pearson", "spearman", "kendall"]
Coefficients = Annotated[tuple[Coefficient, ...], Field(strict=False)]


class CorrelateParams(Params):
    """Two quantities, and the axes whose nodes are the points."""

    x: OneOrMoreNames = Field(
        min_length=1, description="variables, a number per node, each with rows"
    )
    y: OneOrMoreNames = Field(
        min_length=1, description="variables that each x is set against"
    )
    minus: str | None = Field(
        None,
        description="variable of y's stage that is taken off y, such as the training "
        "loss off the test loss for the gap of generalisation",
    )
    over: OneOrMoreNames = Field(
        min_length=1, description="axes of the points: each of their labels has one"
    )
    mean_over: Names = Field(
        (), description="axes over which a point is the mean of nodes, such as seeds"
    )
    within: Names = Field(
        (), description="axes at whose labels correlations are taken apart, a row each"
    )
    coefficients: Coefficients = Field(
        ("pearson", "spearman", "kendall"), min_length=1, description="which ones"
    )
    confidence: float = Field(0.95, gt=0, lt=1, description="coverage of the intervals")
    num_resamples: int = Field(9999, ge=100, description="samples of the bootstrap")
    seed: int = Field(0, ge=0, description="seed of the bootstrap")
    unconverged: Unconverged = "count"


def _check_names(params: CorrelateParams, taken: Taken) -> Iterator[ParamProblem]:
    yield from not_single("x", params.x, taken)
    yield from not_single("y", params.y, taken)
    if params.minus is not None:
        for name in params.y:
            yield from _not_of_a_kind(name, params.minus, taken)


def _not_of_a_kind(name: str, minus: str, taken: Taken) -> Iterator[ParamProblem]:
    """Find what cannot be taken off y: other stages, dimensions or units."""
    having = [(s, v) for s, k in taken["of"].items() if (v := k.output(name))]
    if not having:
        return
    stage, y = having[0]
    off = taken["of"][stage].output(minus)
    if off is None:
        message = f"expected a variable of '{stage}', which has {name}, got '{minus}'"
        yield ("minus",), message, "Both are taken of the same node."
    elif off.dims:
        dims = ", ".join(off.dims)
        message = f"expected a single number per node, got '{minus}' with {dims}"
        yield ("minus",), message, "Choose another variable."
    elif off.units != y.units:
        message = (
            f"expected a variable in the units of {name}, {y.units}, got '{minus}' in "
            f"{off.units}"
        )
        yield ("minus",), message, "Their difference has no units."


def _column(name: str, description: str) -> Variable:
    return Variable(name, description, ("quantity",))


def _text(name: str, description: str) -> Variable:
    return Variable(name, description, ("quantity",), dtype="str")


def _count(name: str, description: str) -> Variable:
    return Variable(name, description, ("quantity",), dtype="int64")


KIND = Kind(
    name="aggregate.correlate",
    version=1,
    summary="Correlations of measured numbers over nodes, with intervals.",
    params=CorrelateParams,
    returns=Table,
    outputs=(
        _text(
            "quantity", "`y against x: coefficient`, behind it the labels of `within`"
        ),
        _text("y_variable", "variable upwards, less the one taken off"),
        _text("y_units", "its units"),
        _text("x_variable", "variable to the right"),
        _text("x_units", "its units"),
        _text("coefficient", "pearson, spearman or kendall, which is tau-b"),
        _column("correlation", "the coefficient; NaN where x or y does not vary"),
        _column("low", "lower limit of the interval by Fisher's transformation"),
        _column("high", "upper limit of it"),
        _column(
            "bootstrap_low", "lower limit of the percentile bootstrap's over points"
        ),
        _column("bootstrap_high", "upper limit of it"),
        _column("p", "two-sided p of no correlation"),
        _column("p_holm", "p, corrected by Holm for the rows of the same coefficient"),
        _count("count", "points, n"),
        _count("diverged", "nodes, or pairs of nodes, left out because one diverged"),
        _count("nonfinite", "left out because of NaN or infinity"),
        _count("missing", "nodes left out that have no partner with equal labels"),
        unconverged(
            "pairs of nodes that did not diverge, of which one is not converged"
        ),
        failed(),
    ),
    inputs={"of": Input(Numbers, many=True)},
    reduces=("over", "mean_over", "within"),
    selects=("x", "y", "minus"),
    check_names=_check_names,
    judges=True,
    vectorised=False,
)

EXPLANATION = Explanation(
    formula=(
        "r = Σ (xᵢ - x̄)(yᵢ - ȳ) / (n sd_x sd_y), of the ranks for spearman; "
        "kendall: τ-b; interval tanh(atanh r ± z / √(n - 3))"
    ),
    source=(
        "Fisher (1921); Bonett and Wright (2000) for spearman's interval; Kendall "
        "(1945); Fieller, Hartley and Pearson (1957) for kendall's"
    ),
    cost="none: stored numbers are read, and resampled num_resamples times a row",
    example=REPEATED
    + """\
  trace: {use: probe.trace, weights: fit, num_probes: 16}
  sharp: {use: aggregate.correlate, of: [fit, trace], x: trace,
          y: final_test_loss,
          over: [seed, rule], num_resamples: 200}
""",
    page="statistics.md#correlate",
)
