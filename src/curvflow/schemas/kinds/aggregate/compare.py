"""Declaration of `aggregate.compare`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Literal

from pydantic import Field

from curvflow.schemas.checks.name_checks import single_label, unknown_label
from curvflow.schemas.explanations import REPEATED, Explanation
from curvflow.schemas.kind import Axes, Input, Kind, ParamProblem, Variable
from curvflow.schemas.kinds.shared.tables import (
    OneOrMoreNames,
    Unconverged,
    failed,
    unconverged,
)
from curvflow.schemas.nodes import Label, Numbers, Table
from curvflow.schemas.params import Names, Params

UNITS = "as the quantity"
# What estimates depend on: those made at different ones are of different things.
SETTINGS = ("localization", "nbeta")
DIFFERING = "differing_settings"


class CompareParams(Params):
    """Quantities, their baseline, and the axes of repetitions."""

    along: str = Field(description="axis whose labels are compared")
    baseline: Label = Field(description="its label that the others are compared with")
    over: OneOrMoreNames = Field(
        min_length=1, description="axes of the repetitions, such as seeds"
    )
    within: Names = Field(
        (), description="axes at whose labels comparisons are made apart, a row each"
    )
    quantities: OneOrMoreNames | None = Field(
        None,
        description="variables; main takes what the kinds declare to be their result, "
        "null all numbers that tables hold",
    )
    paired: bool = Field(
        True,
        description="whether repetitions of equal labels belong together; without it "
        "means are compared by Welch's test",
    )
    confidence: float = Field(0.95, gt=0, lt=1, description="coverage of the intervals")
    bootstrap: Literal["bca", "percentile"] = Field(
        "bca",
        description="interval by resampling: bias-corrected and accelerated, or not",
    )
    num_resamples: int = Field(9999, ge=100, description="samples of the bootstrap")
    seed: int = Field(0, ge=0, description="seed of the bootstrap")
    unconverged: Unconverged = "count"

    def row(self, label: Label, group: Sequence[Label]) -> str:
        """Return what stands behind a variable's name in a row.

        Args:
            label: the one compared.
            group: labels of `within`, in its order.

        Returns:
            `: label - baseline`, and for each axis of `within` `, axis=label`.
        """
        where = zip(self.within, group, strict=True)
        behind = "".join(f", {axis}={at}" for axis, at in where)
        return f": {label} - {self.baseline}{behind}"


def _rows(params: CompareParams, labels: Mapping[str, Sequence[Label]]) -> list[str]:
    others = [label for label in labels[params.along] if label != params.baseline]
    groups = list(product(*(labels[axis] for axis in params.within)))
    return [params.row(label, group) for group in groups for label in others]


def _column(name: str, description: str, units: str = UNITS) -> Variable:
    return Variable(name, description, ("quantity",), units=units)


def _count(name: str, description: str) -> Variable:
    return Variable(name, description, ("quantity",), dtype="int64")


def _text(name: str, description: str) -> Variable:
    return Variable(name, description, ("quantity",), dtype="str")


def _check_axes(params: CompareParams, axes: Axes) -> Iterator[ParamProblem]:
    """Yield an unknown baseline, or an axis with nothing to compare it with."""
    yield from unknown_label(("baseline",), params.along, params.baseline, axes)
    yield from single_label(params, "along", axes)


KIND = Kind(
    name="aggregate.compare",
    version=2,
    summary="Differences of quantities from a baseline, with intervals and tests.",
    params=CompareParams,
    returns=Table,
    outputs=(
        _text(
            "quantity",
            "variable, as in aggregate.summary, and behind it the two labels and those "
            "of `within`",
        ),
        _text("units", "units of the quantity"),
        _text("label", "label compared"),
        _column("mean", "mean of the differences, label less baseline"),
        _column("sd", "their standard deviation, n - 1; NaN if not paired"),
        _column("sem", "standard error of the mean difference"),
        _column("low", "lower limit of Student's interval, of Welch's if not paired"),
        _column("high", "upper limit of it"),
        _column("bootstrap_low", "lower limit of the interval by resampling"),
        _column("bootstrap_high", "upper limit of it"),
        _column("label_mean", "mean of the label's values"),
        _column("baseline_mean", "mean of the baseline's values"),
        _column("p_t", "two-sided p of the t-test that the means are equal", "1"),
        _column(
            "p_rank",
            "two-sided p of Wilcoxon's signed ranks; of Mann and Whitney's ranks if "
            "not paired",
            "1",
        ),
        _column("p_t_holm", "p_t, corrected by Holm for all rows of the table", "1"),
        _column("p_rank_holm", "p_rank, corrected alike", "1"),
        _column(
            "effect",
            "mean difference over the standard deviation of differences, Cohen's d_z; "
            "if not paired, over the root of the mean variance",
            "1",
        ),
        _column("hedges_g", "effect, corrected for the bias of few repetitions", "1"),
        _count("count", "pairs, or values of the label, that are compared"),
        _count("baseline_count", "the same of the baseline"),
        _count("above", "pairs whose difference is above 0; -1 if not paired"),
        _count("diverged", "pairs, or nodes, left out because one diverged"),
        _count("nonfinite", "left out because of NaN or infinity"),
        _count("missing", "left out because one side has no such value"),
        unconverged(
            "pairs, or nodes, that did not diverge, of which one is not converged"
        ),
        Variable(
            DIFFERING,
            f"which of {' and '.join(SETTINGS)} the estimates compared were made at "
            "different values of, least to greatest; empty if at the same",
            ("quantity",),
            dtype="str",
            optional=True,
        ),
        failed(),
    ),
    settings=SETTINGS,
    rows=_rows,
    inputs={"of": Input(Numbers, many=True)},
    reduces=("along", "over", "within"),
    check_axes=_check_axes,
    selects=("quantities",),
    judges=True,
    vectorised=False,
)

EXPLANATION = Explanation(
    formula=(
        "mean difference d̄ = mean(yᵢ - bᵢ) over pairs, d̄ ± t · sd / √n; not "
        "paired: ȳ - b̄ with Welch's degrees of freedom"
    ),
    source=(
        "Student (1908), doi:10.1093/biomet/6.1.1; Wilcoxon (1945), "
        "doi:10.2307/3001968; Welch (1947), doi:10.1093/biomet/34.1-2.28; Mann and "
        "Whitney (1947), doi:10.1214/aoms/1177730491; Efron (1987), "
        "doi:10.2307/2289144; Holm (1979); Hedges (1981), "
        "doi:10.3102/10769986006002107"
    ),
    cost="none: stored numbers are read, and resampled num_resamples times a row",
    example=REPEATED
    + """\
  compared: {use: aggregate.compare, of: fit, along: rule, baseline: sgd,
             over: seed, quantities: final_test_loss}
""",
    page="statistics.md#compare",
)
