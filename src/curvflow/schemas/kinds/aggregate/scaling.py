"""Declaration of `aggregate.scaling`."""

from __future__ import annotations

from collections.abc import Iterator

from curvflow.schemas.checks.name_checks import text_labels
from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Axes, Input, Kind, ParamProblem, Variable
from curvflow.schemas.kinds.shared.tables import (
    ScalingLaw,
    Unconverged,
    check_names,
    failed,
    unconverged,
)
from curvflow.schemas.nodes import Numbers, Table


class ScalingParams(ScalingLaw):
    """Quantity that a law is fitted to, and the groups fitted separately."""

    unconverged: Unconverged = "count"


def _column(name: str, description: str, units: str = "1") -> Variable:
    return Variable(name, description, ("quantity",), units=units)


def _count(name: str, description: str) -> Variable:
    return Variable(name, description, ("quantity",), dtype="int64")


def _text(name: str, description: str, dim: str = "quantity") -> Variable:
    return Variable(name, description, (dim,), dtype="str")


def _crossing(name: str, description: str) -> Variable:
    return Variable(name, description, ("crossing",), units="as x")


def _check_axes(params: ScalingParams, axes: Axes) -> Iterator[ParamProblem]:
    """Yield labels of the sizes that are no numbers."""
    return text_labels(params, "along", axes)


KIND = Kind(
    name="aggregate.scaling",
    version=1,
    summary="Power laws by least squares of logarithms, and where two of them cross.",
    params=ScalingParams,
    returns=Table,
    outputs=(
        _text("quantity", "`y against x`, and behind it the label"),
        _text("y_units", "units of y"),
        _text("x_units", "units of x; 1 for an axis"),
        _column("exponent", "slope of log y on log x; NaN for one x"),
        _column("sem", "its standard error from the residuals"),
        _column("low", "lower limit of Student's interval for it"),
        _column("high", "upper limit of it"),
        _column("bootstrap_low", "lower limit by drawing repetitions anew"),
        _column("bootstrap_high", "upper limit of it"),
        _column("prefactor", "y of the law at x = 1", "as y"),
        _column("prefactor_low", "lower limit of Student's interval for it", "as y"),
        _column("prefactor_high", "upper limit of it", "as y"),
        _column("r_squared", "share of the variance of log y that the law explains"),
        _column("residual_sd", "standard deviation of the residuals of ln y, n - 2"),
        _column(
            "p_curved",
            "p of the t-test that a square of log x explains nothing more; small where "
            "the points are no straight line",
        ),
        _column("least_x", "least x fitted", "as x"),
        _column("greatest_x", "greatest x fitted", "as x"),
        _count("count", "points fitted, n"),
        _count("num_x", "different x among them"),
        _count("nonpositive", "points left out because x or y is not above 0"),
        _count("diverged", "nodes left out because they diverged"),
        _count("nonfinite", "left out because of NaN or infinity"),
        unconverged("points with a value that is not converged"),
        _text("crossing", "two labels whose laws cross", "crossing"),
        _crossing("crossover", "x where they do; NaN if the exponents are equal"),
        _crossing(
            "crossover_low",
            "lower limit of Fieller's interval; 0 where the exponents cannot "
            "be distinguished, so that the laws may cross anywhere",
        ),
        _crossing("crossover_high", "upper limit of it; infinite there"),
        _crossing(
            "crossover_bootstrap_low",
            "lower limit by drawing repetitions anew; 0 where these do not "
            "distinguish the exponents",
        ),
        _crossing("crossover_bootstrap_high", "upper limit of it; infinite there"),
        Variable(
            "inside",
            "whether it is between the least and the greatest x of both",
            ("crossing",),
            dtype="bool",
        ),
        failed(),
    ),
    inputs={"of": Input(Numbers, many=True)},
    reduces=("along", "over", "each", "label"),
    check_axes=_check_axes,
    selects=("y", "x"),
    check_names=check_names,
    judges=True,
    vectorised=False,
)

EXPLANATION = Explanation(
    formula=(
        "ln y = ln prefactor + exponent · ln x by least squares; two laws cross at "
        "exp((b₂ - b₁) / (a₁ - a₂)) of slopes a and intercepts b"
    ),
    source="Fieller (1954) for the interval of a crossing; the rest is least squares",
    cost="none: stored numbers are read, and repetitions resampled",
    example="""\
study: example
axes: {seed: 3, size: [50, 100, 200]}
stages:
  digits: {use: data.digits, num_train: "${size}"}
  fit: {use: train, data: digits, model: {kind: mlp, hidden: [8]},
        rule: {rule: sgd, lr: 0.1}, seed: "${seed}", epochs: 5}
  law: {use: aggregate.scaling, of: fit, y: final_test_loss, along: size,
        over: seed}
""",
    page="statistics.md#scaling",
)
