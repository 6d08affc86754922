"""Declaration of `aggregate.minimum`."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from curvflow.errors import nearest
from curvflow.schemas.checks.name_checks import not_single, text_labels
from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Axes, Input, Kind, ParamProblem, Taken, Variable
from curvflow.schemas.kinds.shared.tables import (
    NumericX,
    OneOrMoreNames,
    Unconverged,
    failed,
    unconverged,
)
from curvflow.schemas.nodes import Numbers, Table


class MinimumParams(NumericX):
    """Quantity whose least value is sought, and where."""

    quantity: str = Field(
        description="variable; its error is the variable of this name with _sem"
    )
    x: str | None = Field(
        None,
        description="variable that is x instead, of the one dimension of the quantity",
    )
    over: OneOrMoreNames = Field(
        (), description="axes of the repetitions, each of which has a minimum"
    )
    confidence: float = Field(0.95, gt=0, lt=1, description="coverage of the interval")
    num_resamples: int = Field(
        1000,
        ge=100,
        description="curves drawn with the standard errors, where there is no "
        "repetition",
    )
    seed: int = Field(0, ge=0, description="seed of these")
    unconverged: Unconverged = "count"


def _check_names(params: MinimumParams, taken: Taken) -> Iterator[ParamProblem]:
    if params.x is None:
        yield from not_single("quantity", [params.quantity], taken)
        return
    for kind in taken["of"].values():
        quantity, x = kind.output(params.quantity), kind.output(params.x)
        if quantity is None:
            continue
        fitting = [
            v.name for v in kind.outputs if v.dims == quantity.dims and v.dtype != "str"
        ]
        if len(quantity.dims) != 1:
            dims = ", ".join(quantity.dims) or "none"
            message = f"expected a variable with one dimension, got {dims}"
            yield ("quantity",), message, "Name an axis by 'along' in place of 'x'."
        elif x is None or x.name not in fitting:
            message = f"expected numbers of {quantity.dims[0]}, got '{params.x}'"
            yield ("x",), message, nearest(params.x, fitting)


def _check_axes(params: MinimumParams, axes: Axes) -> Iterator[ParamProblem]:
    """Yield labels of x that are no numbers."""
    return text_labels(params, "along", axes)


def _column(name: str, description: str, units: str = "as x") -> Variable:
    return Variable(name, description, ("quantity",), units=units)


def _count(name: str, description: str) -> Variable:
    return Variable(name, description, ("quantity",), dtype="int64")


def _text(name: str, description: str) -> Variable:
    return Variable(name, description, ("quantity",), dtype="str")


KIND = Kind(
    name="aggregate.minimum",
    version=1,
    summary="Argument of the least value of a quantity, with an interval.",
    params=MinimumParams,
    returns=Table,
    outputs=(
        _text("quantity", "`variable along x`"),
        _column("argument", "x of the minimum, mean over the repetitions"),
        _column("argument_sd", "standard deviation over the repetitions, n - 1"),
        _column(
            "argument_sem",
            "standard error: of the mean, or by the errors of one repetition; NaN if "
            "neither is known",
        ),
        _column("argument_low", "lower limit of the interval"),
        _column("argument_high", "upper limit of it"),
        _text("interval", "what it is of: repetitions, errors, or none"),
        _column(
            "minimum",
            "least value, of the parabola, mean over these",
            "as the variable",
        ),
        _column("least_x", "least x that has a value"),
        _column("greatest_x", "greatest x that has one"),
        _column(
            "spacing", "mean distance of the neighbours of the least point, halved"
        ),
        _count("count", "repetitions that have a minimum, n"),
        _count(
            "at_edge",
            "those whose least value is at an end of x: the minimum may lie beyond",
        ),
        _count("diverged", "nodes left out because they diverged"),
        _count("nonfinite", "values left out because of NaN or infinity"),
        unconverged("values that are not converged"),
        failed(),
    ),
    inputs={"of": Input(Numbers, many=True)},
    reduces=("along", "over"),
    check_axes=_check_axes,
    check_names=_check_names,
    judges=True,
    vectorised=False,
)

EXPLANATION = Explanation(
    formula=(
        "vertex of the parabola through the least value and its two neighbours; mean "
        "over n repetitions ± t(n - 1) · sd / √n"
    ),
    source="none: three values determine a parabola",
    cost="none: stored numbers are read, and one repetition resampled",
    example="""\
study: example
axes: {p: [0.1, 0.2, 0.3]}
stages:
  graph: {use: data.random_graph, model: erdos_renyi, n: 50, p: 0.2, seed: 1}
  spectrum: {use: probe.dense, graph: graph}
  tried: {use: data.random_graph, model: erdos_renyi, n: 50, p: "${p}"}
  candidates: {use: probe.dense, graph: tried}
  distance: {use: aggregate.spectral_distance, of: candidates, along: p,
             target: spectrum, divergence: wasserstein1}
  nearest: {use: aggregate.minimum, of: distance, quantity: distance,
            x: value}
""",
    page="statistics.md#minimum",
)
