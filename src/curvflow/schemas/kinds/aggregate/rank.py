"""Declaration of `aggregate.rank`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, model_validator

from curvflow.schemas.checks.name_checks import not_single, single_label
from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Axes, Input, Kind, ParamProblem, Taken, Variable
from curvflow.schemas.kinds.shared.tables import (
    OneOrMoreNames,
    Unconverged,
    failed,
    unconverged,
)
from curvflow.schemas.nodes import Numbers, Table
from curvflow.schemas.params import Names, Params


class RankParams(Params):
    """Axis that is ranked, the quantities, and the axes of repetitions."""

    along: str = Field(description="axis whose labels are ranked, such as rules")
    lower_is_better: OneOrMoreNames = Field(
        (), description="variables of which the least has rank 1, such as errors"
    )
    higher_is_better: OneOrMoreNames = Field(
        (), description="variables of which the greatest has rank 1"
    )
    over: OneOrMoreNames = Field(
        min_length=1,
        description="axes of the repetitions, at each of which the labels are ranked, "
        "such as seeds or tasks",
    )
    mean_over: Names = Field(
        (), description="axes averaged over before, such as the seeds of a task"
    )
    within: Names = Field(
        (),
        description="axes at whose labels rankings are made apart, such as data sets",
    )
    epochs: Literal["last", "best"] = Field(
        "last",
        description="of a variable along epochs: its last value, or the best of all",
    )
    diverged: Literal["last", "leave_out"] = Field(
        "last",
        description="last: what diverged or is not finite shares the last ranks; "
        "leave_out: repetitions in which any label did so are left out",
    )
    confidence: float = Field(
        0.95, gt=0, lt=1, description="of the interval and of the critical difference"
    )
    unconverged: Unconverged = "count"

    @model_validator(mode="after")
    def _each_has_one_direction(self) -> RankParams:
        if not self.quantities:
            raise ValueError(
                "expected variables in lower_is_better or higher_is_better, got none. "
                "Name what labels are ranked by."
            )
        for name in self.lower_is_better:
            if name in self.higher_is_better:
                raise ValueError(
                    f"expected each variable in one of lower_is_better and "
                    f"higher_is_better, got '{name}' in both. Remove it from one."
                )
        return self

    @property
    def quantities(self) -> tuple[str, ...]:
        """The variables that labels are ranked by."""
        return (*self.lower_is_better, *self.higher_is_better)


def _check_names(params: RankParams, taken: Taken) -> Iterator[ParamProblem]:
    for field in ("lower_is_better", "higher_is_better"):
        yield from not_single(field, getattr(params, field), taken, along=["epoch"])


def _column(name: str, description: str, units: str = "1") -> Variable:
    return Variable(name, description, ("quantity",), units=units)


def _count(name: str, description: str) -> Variable:
    return Variable(name, description, ("quantity",), dtype="int64")


def _text(name: str, description: str) -> Variable:
    return Variable(name, description, ("quantity",), dtype="str")


def _check_axes(params: RankParams, axes: Axes) -> Iterator[ParamProblem]:
    """Yield an axis with nothing to rank."""
    return single_label(params, "along", axes)


KIND = Kind(
    name="aggregate.rank",
    version=1,
    summary="Ranks of labels over repetitions, with Friedman's test.",
    params=RankParams,
    returns=Table,
    outputs=(
        _text("quantity", "`variable: label`, and behind it the labels of `within`"),
        _text("units", "units of the variable"),
        _text("label", "label ranked"),
        _column("mean_rank", "mean of its ranks; 1 is best, ties share their mean"),
        _column("sem", "standard error of the mean rank"),
        _column("low", "lower limit of Student's interval for the mean rank"),
        _column("high", "upper limit of it"),
        _column("place", "rank of the mean rank among the labels"),
        _column("mean_value", "mean of its finite values", "as the quantity"),
        _count("wins", "repetitions in which no other label is better"),
        _count("count", "repetitions ranked, n"),
        _count("diverged", "nodes of the label that diverged"),
        _count("nonfinite", "those with NaN or infinity"),
        _count("missing", "those that are not there"),
        _count("left_out", "repetitions not ranked, since a label lacks a value there"),
        unconverged("nodes of the label that are not converged"),
        _column("friedman", "Friedman's chi2 that all labels are alike"),
        _column("p_friedman", "its p, from k - 1 degrees of freedom"),
        _column("p_iman_davenport", "p of Iman and Davenport's F from it"),
        _column("kendall_w", "agreement of the repetitions, 0 to 1"),
        _column(
            "critical_difference", "of mean ranks, by Nemenyi: smaller ones are no news"
        ),
        failed(),
    ),
    inputs={"of": Input(Numbers, many=True)},
    reduces=("along", "over", "mean_over", "within"),
    check_axes=_check_axes,
    selects=("lower_is_better", "higher_is_better"),
    check_names=_check_names,
    judges=True,
    vectorised=False,
)

EXPLANATION = Explanation(
    formula=(
        "mean rank R̄ of each label over n repetitions; Friedman's χ² that all are "
        "alike; critical difference q √(k (k + 1) / 6n)"
    ),
    source="Friedman (1937); Iman and Davenport (1980); Nemenyi (1963)",
    cost="none: stored numbers are read",
    example="""\
study: example
axes: {seed: 4, eta: [0.03, 0.1, 0.3]}
stages:
  digits: {use: data.digits, num_train: 200}
  fit: {use: train, data: digits, model: {kind: mlp, hidden: [8]},
        rule: {rule: sgd, lr: "${eta}"}, seed: "${seed}", epochs: 5}
  ranks: {use: aggregate.rank, of: fit, along: eta, over: seed,
          lower_is_better: final_test_loss}
""",
    page="statistics.md#rank",
)
