"""Declaration of `aggregate.coverage`."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from curvflow.errors import nearest
from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Input, Kind, ParamProblem, Taken, Variable, error_of
from curvflow.schemas.kinds.shared.tables import OneOrMoreNames, Unconverged, failed
from curvflow.schemas.nodes import Numbers, Table
from curvflow.schemas.params import Params


class CoverageParams(Params):
    """Intervals, and the truth that they should cover."""

    repetitions: OneOrMoreNames = Field(
        min_length=1, description="axes along which estimates are repeated"
    )
    quantities: OneOrMoreNames = Field(
        min_length=1,
        description="variables of the stages taken; their error is the variable of "
        "this name with _sem, of `_mean` with that in its place, or their interval "
        "those with _low and _high",
    )
    truth_variable: str | None = Field(
        None, description="variable of the truth; null takes the same names"
    )
    confidence: float = Field(
        0.95, gt=0, lt=1, description="coverage that Student's intervals should have"
    )
    draws: int | None = Field(
        None,
        ge=2,
        description="how many draws the errors come from, for Student's interval of "
        "stages that do not say so by num_draws; null takes the errors as known",
    )
    rounding: float = Field(
        1e-9, ge=0, lt=1, description="relative error that counts as none"
    )
    unconverged: Unconverged = "count"


def _column(name: str, description: str) -> Variable:
    return Variable(name, description, ("quantity",))


def _check_names(params: CoverageParams, taken: Taken) -> Iterator[ParamProblem]:
    kinds = taken["of"].values()
    known = {v.name for kind in kinds for v in kind.chosen()}
    judged = {
        v.name
        for kind in kinds
        for v in kind.chosen()
        if error_of(kind, v.name) or kind.output(f"{v.name}_low")
    }
    for name in params.quantities:
        if name not in known:
            message = f"expected variables of the stages taken, got '{name}'"
            yield ("quantities",), message, nearest(name, known)
        elif name not in judged:
            message = f"expected variables that have an error, got '{name}'"
            yield ("quantities",), message, nearest(name, judged)


KIND = Kind(
    name="aggregate.coverage",
    version=3,
    summary="How often stated intervals hold the truth, over repetitions.",
    params=CoverageParams,
    returns=Table,
    outputs=(
        Variable(
            "quantity",
            "variable, with the stage's name before it and the element's number behind "
            "it if there are several",
            ("quantity",),
            dtype="str",
        ),
        _column("coverage", "share of the intervals that hold the truth"),
        _column("coverage_low", "lower limit of its Clopper-Pearson interval, 95 %"),
        _column("coverage_high", "upper limit of it"),
        _column("mean_z", "mean of (estimate - truth) / sem; NaN without a sem"),
        _column("sd_z", "standard deviation of the same; 1 if the errors are right"),
        Variable("count", "intervals judged", ("quantity",), dtype="int64"),
        Variable(
            "unjudged",
            "estimates or truths that diverged or are not finite",
            ("quantity",),
            dtype="int64",
        ),
        _column(
            "judged",
            "share of the estimates that are judged; with unconverged: exclude, that "
            "of those that are converged",
        ),
        failed(),
    ),
    inputs={"of": Input(Numbers, many=True), "truth": Input(Numbers, many=True)},
    reduces=("repetitions",),
    check_names=_check_names,
    vectorised=False,
)

EXPLANATION = Explanation(
    formula=(
        "coverage = share of repetitions with low ≤ truth ≤ high; its interval is "
        "Clopper and Pearson's"
    ),
    source="Clopper and Pearson (1934), doi:10.1093/biomet/26.4.404",
    cost="none: stored numbers are read",
    example="""\
study: example
axes: {seed: 20}
stages:
  digits: {use: data.digits, num_train: 100}
  fit: {use: train, data: digits, model: {kind: mlp, hidden: [2]},
        rule: {rule: sgd, lr: 0.1}, epochs: 2, seed: "${seed}"}
  trace: {use: probe.trace, weights: fit, num_probes: 16, seed: "${seed}"}
  exact: {use: probe.dense, weights: fit}
  covered: {use: aggregate.coverage, of: trace, truth: exact,
            quantities: trace,
            repetitions: seed}
""",
    page="statistics.md#coverage",
)
