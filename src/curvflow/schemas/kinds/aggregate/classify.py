"""Declaration of `aggregate.classify`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from curvflow.errors import nearest
from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Input, Kind, ParamProblem, Variable
from curvflow.schemas.nodes import Distances, Table
from curvflow.schemas.params import Params

STAGE = "stage"


class ClassifyParams(Params):
    """Classes of the items that distances are of."""

    by: str = Field(
        description="axis of the items whose label is their class; stage, if they are "
        "of several stages"
    )
    confidence: float = Field(0.95, gt=0, lt=1, description="coverage of the intervals")


def _lacking(params: Any, name: str, distances: Any) -> Iterator[ParamProblem]:
    """Yield an axis that items do not have, and distances that are not of all pairs."""
    along = (*getattr(distances, "along", ()), STAGE)
    if params.by not in along:
        message = f"expected an axis along which '{name}' compares, got '{params.by}'"
        yield ("by",), message, nearest(params.by, along)
    if getattr(distances, "to", None) is not None:
        message = f"expected distances of all pairs, got '{name}' to {distances.to}"
        yield ("of",), message, "Leave out its 'to'."


def _share(name: str, description: str) -> Variable:
    return Variable(name, description, ("quantity",))


def _count(name: str, description: str, *dims: str, series: bool = False) -> Variable:
    return Variable(name, description, dims, dtype="int64", series=series)


def _text(name: str, description: str, dim: str) -> Variable:
    return Variable(name, description, (dim,), dtype="str")


KIND = Kind(
    name="aggregate.classify",
    version=1,
    summary="Classes by the nearest item, each left out in turn, with the confusion.",
    params=ClassifyParams,
    returns=Table,
    outputs=(
        _text("quantity", "accuracy, and `accuracy: class` of each class", "quantity"),
        _share("accuracy", "share of the items whose nearest other has their class"),
        _share("low", "lower limit of Clopper and Pearson's interval"),
        _share("high", "upper limit of it"),
        _count("count", "items that have a nearest one", "quantity"),
        _count("correct", "those of them whose class is found", "quantity"),
        Variable("chance", "share of the most frequent class"),
        _count("num_unclassified", "items without a finite distance"),
        _text("label", "classes", "label"),
        _text("predicted", "the same", "predicted"),
        _count(
            "confusion",
            "items of each class whose nearest has each class",
            "label",
            "predicted",
            series=True,
        ),
        _text("item", "labels of each item", "item"),
        _text("nearest", "item nearest to it; empty if there is none", "item"),
        Variable("distance_to_nearest", "distance to it", ("item",), units="as matrix"),
        Variable(
            "margin",
            "least distance to another class less that to its own: below 0 where it is "
            "not found",
            ("item",),
            units="as matrix",
        ),
    ),
    inputs={"of": Input(Distances, lacking=_lacking)},
    vectorised=False,
)

EXPLANATION = Explanation(
    formula=(
        "class of argmin over j ≠ i of d(i, j); accuracy = share of items i for which "
        "it is that of i; its interval is Clopper and Pearson's"
    ),
    source=(
        "Cover and Hart (1967), doi:10.1109/TIT.1967.1053964; Clopper and Pearson "
        "(1934), doi:10.1093/biomet/26.4.404"
    ),
    cost="none: stored distances are read",
    example="""\
study: example
axes: {p: [0.05, 0.2], seed: 3}
stages:
  graph: {use: data.random_graph, model: erdos_renyi, n: 60, p: "${p}",
          seed: "${seed}"}
  spectrum: {use: probe.dense, graph: graph}
  distance: {use: aggregate.spectral_distance, of: spectrum, along: [p, seed],
             divergence: wasserstein1}
  classes: {use: aggregate.classify, of: distance, by: p}
""",
    page="graphs.md#classes-of-spectra",
)
