"""Declaration of `aggregate.best`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from curvflow.schemas.checks.name_checks import not_single, too_many_parts
from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Axes, Input, Kind, ParamProblem, Taken, Variable
from curvflow.schemas.kinds.shared.tables import (
    OneOrMoreNames,
    Unconverged,
    failed,
    unconverged,
)
from curvflow.schemas.nodes import Numbers, Table
from curvflow.schemas.params import Names, Neutral, Params

UNITS = "as the quantity"


class BestParams(Params):
    """Axis whose best label is chosen, the criterion, and the quantity reported."""

    along: OneOrMoreNames = Field(
        min_length=1, description="axes whose labels, together, are the candidates"
    )
    by: str = Field(
        description="variable of validation whose mean decides; one of the test set is "
        "refused"
    )
    goal: Literal["min", "max"] = Field(description="whether its least mean is best")
    report: OneOrMoreNames = Field(
        min_length=1, description="variables reported of what is chosen"
    )
    over: OneOrMoreNames = Field(
        min_length=1, description="axes of the repetitions, such as seeds"
    )
    within: Names = Field(
        (), description="axes at each of whose labels a choice is made, such as rules"
    )
    folds: int | None = Field(
        None,
        ge=2,
        description="nested: repetitions are dealt into so many parts, and those of a "
        "part are reported of what the others choose; null chooses and reports on all",
    )
    diverged: Literal["refuse", "ignore"] = Field(
        "refuse",
        description="refuse: a candidate of which a repetition diverged, is not finite "
        "or is missing cannot be chosen; ignore: its others decide, if there are "
        "least_share of all",
    )
    least_share: Annotated[float, Neutral(0.5)] = Field(
        0.5,
        ge=0,
        le=1,
        description="with diverged: ignore, share of the repetitions that a candidate "
        "must have values of to be chosen; 0 lets a single one decide",
    )
    confidence: float = Field(0.95, gt=0, lt=1, description="coverage of the interval")
    unconverged: Unconverged = "count"


def _check_names(params: BestParams, taken: Taken) -> Iterator[ParamProblem]:
    if "test" in params.by.split("_"):
        message = f"expected a variable that is not of the test set, got '{params.by}'"
        hint = "Choose by validation or training, and report the test set."
        yield ("by",), message, hint
    if params.by in params.report:
        message = f"expected other variables than '{params.by}', which decides, got it"
        yield ("report",), message, "Remove it: it has a row without that."
    yield from not_single("by", [params.by], taken)
    yield from not_single("report", params.report, taken)


def _column(name: str, description: str) -> Variable:
    return Variable(name, description, ("quantity",), units=UNITS)


def _count(name: str, description: str, dim: str = "quantity") -> Variable:
    return Variable(name, description, (dim,), dtype="int64")


def _text(name: str, description: str, dim: str = "quantity") -> Variable:
    return Variable(name, description, (dim,), dtype="str")


def _of_candidate(name: str, description: str) -> Variable:
    return Variable(name, description, ("candidate",), units="as the one that decides")


def _check_axes(params: BestParams, axes: Axes) -> Iterator[ParamProblem]:
    """Yield more folds than there are repetitions."""
    return too_many_parts(params, "folds", params.over, axes)


KIND = Kind(
    name="aggregate.best",
    version=1,
    summary="The best setting by validation, and what the test set says of it.",
    params=BestParams,
    returns=Table,
    outputs=(
        _text("quantity", "variable, and behind it the labels of `within`"),
        _text("units", "units of the quantity"),
        _text("chosen", "labels chosen on all repetitions; empty if none could be"),
        _text(
            "choices",
            "with folds: labels chosen, and in brackets the number of folds that chose "
            "each",
        ),
        _column("mean", "mean over the repetitions reported"),
        _column("sd", "standard deviation of the values, n - 1"),
        _column("sem", "standard error of the mean"),
        _column("low", "lower limit of Student's interval for the mean"),
        _column("high", "upper limit of it"),
        _count("count", "repetitions reported, n"),
        _count("diverged", "repetitions of the chosen label that diverged"),
        _count("nonfinite", "those with NaN or infinity"),
        _count(
            "missing",
            "repetitions without a value, or for which no label could be chosen",
        ),
        unconverged("repetitions of the chosen label that are not converged"),
        _count("num_candidates", "candidates"),
        _count("num_refused", "candidates that could not be chosen"),
        _count("num_tied", "other candidates with the same mean; the first is chosen"),
        _count("num_close", "other candidates within a standard error of the best"),
        Variable(
            "at_edge",
            "whether the choice is the least or the greatest of three numbers or more: "
            "the best may lie beyond",
            ("quantity",),
            dtype="bool",
        ),
        _text("candidate", "labels of a candidate", "candidate"),
        _of_candidate("candidate_mean", "mean of the variable that decides"),
        _of_candidate("candidate_sem", "its standard error"),
        _count("candidate_count", "repetitions it is of", "candidate"),
        _count("candidate_diverged", "repetitions that diverged", "candidate"),
        _count("candidate_nonfinite", "those with NaN or infinity", "candidate"),
        _count("candidate_missing", "those without a value", "candidate"),
        unconverged(
            "repetitions that are not converged",
            "candidate",
            "candidate_unconverged",
        ),
        _text("verdict", "chosen, tied, refused, or not chosen", "candidate"),
        failed(),
    ),
    inputs={"of": Input(Numbers, many=True)},
    reduces=("along", "over", "within"),
    check_axes=_check_axes,
    selects=("by", "report"),
    check_names=_check_names,
    judges=True,
    vectorised=False,
)

EXPLANATION = Explanation(
    formula=(
        "argmin or argmax over candidates of the mean of `by`; reported is the mean "
        "of other variables there, ȳ ± t(n - 1) · sem; with folds each part is "
        "reported of what the others choose"
    ),
    source="Varma and Simon (2006) for nested choice",
    cost="none: stored numbers are read",
    example="""\
study: example
axes: {seed: 4, eta: [0.03, 0.1, 0.3]}
stages:
  digits: {use: data.digits, num_train: 200}
  fit: {use: train, data: digits, model: {kind: mlp, hidden: [8]},
        rule: {rule: sgd, lr: "${eta}"}, seed: "${seed}", epochs: 5,
        validation_fraction: 0.2}
  best: {use: aggregate.best, of: fit, along: eta, by: final_validation_loss,
         goal: min, report: final_test_loss, over: seed, folds: 2}
""",
    page="statistics.md#best",
)
