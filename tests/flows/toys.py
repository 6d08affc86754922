"""Toy kinds: the engine's whole behaviour in microseconds, and a tally of calls."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast
from unittest import mock

import numpy as np
from pydantic import Field

from curvflow.flows.graph.open_study import OpenedStudy
from curvflow.flows.graph.source_files import SourceFiles
from curvflow.flows.run.run import RunReport, run_study
from curvflow.schemas import kinds
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.nodes import Data, Member, Numbers, Outcome, Table, Weights
from curvflow.schemas.options import RunOptions
from curvflow.schemas.params import Names, Params
from curvflow.schemas.study.study import load_study
from curvflow.stores.base import Store
from curvflow.tasks import registry
from curvflow.tasks.registry import Machine, computes

CALLS: Counter[str] = Counter()  # tiles computed, per kind
UNLUCKY = {13}  # seeds at which toy.fit fails
WIDTHS: list[int] = []  # members of each tile of toy.fit


class PointsParams(Params):
    """Parameters of the toy data."""

    count: int = Field(4, ge=2)


class FitParams(Params):
    """Parameters of the toy training."""

    lr: float = 0.5
    seed: int = 0
    epochs: int = 4
    every: int = 2


class ProbeParams(Params):
    """Parameters of the toy probe."""

    scale: float = 1.0


class MeanParams(Params):
    """Parameters of the toy aggregate."""

    over: str | Names = "seed"
    quantities: Names | None = None


POINTS = Kind(
    name="toy.points",
    version=1,
    summary="Points.",
    params=PointsParams,
    returns=Data,
    outputs=(
        Variable("inputs", "points", ("sample",), bulk=True),
        Variable("targets", "labels", ("sample",), bulk=True),
    ),
)
FIT = Kind(
    name="toy.fit",
    version=1,
    summary="Shrink a weight by the learning rate at every epoch.",
    params=FitParams,
    returns=Weights,
    outputs=(
        Variable("final", "last weight"),
        Variable("epoch", "epoch", ("epoch",), "int64", series=True),
        Variable("loss", "loss per epoch", ("epoch",), series=True),
        Variable("checkpoint", "epoch", ("checkpoint",), "int64", series=True),
        Variable(
            "weights",
            "weights",
            ("checkpoint", "parameter"),
            bulk=True,
            sliced="checkpoint",
        ),
        Variable("network", "network", (), "str"),
    ),
    inputs={"data": Input(Data)},
    varying=("seed", "lr"),
    checkpoints=lambda p: range(0, p.epochs + 1, p.every),
)
PROBE = Kind(
    name="toy.probe",
    version=1,
    summary="Square the weight.",
    params=ProbeParams,
    returns=Numbers,
    outputs=(Variable("square", "squared weight", units="weight^2"),),
    inputs={"weights": Input(Weights), "data": Input(Data, follows="weights")},
)
MEAN = Kind(
    name="toy.mean",
    version=1,
    summary="Mean over axes.",
    params=MeanParams,
    returns=Table,
    outputs=(
        Variable("mean", "mean"),
        Variable("count", "values", (), "int64"),
        Variable("diverged", "diverged nodes", (), "int64"),
    ),
    inputs={"of": Input(Numbers, many=True)},
    reduces=("over",),
    selects=("quantities",),
    vectorised=False,
)


def _points(members: Sequence[Member], _: Machine) -> list[Outcome]:
    CALLS["toy.points"] += 1
    counts = [cast("PointsParams", member.params).count for member in members]
    return [
        Outcome({"inputs": np.arange(float(n)), "targets": np.ones(n)}) for n in counts
    ]


def _fit(members: Sequence[Member], _: Machine) -> list[Outcome]:
    CALLS["toy.fit"] += 1
    WIDTHS.append(len(members))
    params = [cast("FitParams", member.params) for member in members]
    if any(p.seed in UNLUCKY for p in params):
        raise RuntimeError("seed 13 is unlucky")
    return [_fit_one(p) for p in params]


def _fit_one(p: FitParams) -> Outcome:
    epochs = np.arange(p.epochs + 1)
    path = (p.seed + 1.0) * (1 - p.lr) ** epochs
    diverged = p.lr > 2
    if diverged:
        path[2:] = np.nan
    kept = np.arange(0, p.epochs + 1, p.every)
    arrays = {
        "final": np.array(path[-1]),
        "epoch": epochs,
        "loss": path**2,
        "checkpoint": kept,
        "weights": path[kept, None],
        "network": np.array("toy"),
    }
    return Outcome(
        arrays,
        "diverged" if diverged else "ok",
        "non-finite weight at epoch 2" if diverged else "",
    )


def _probe(members: Sequence[Member], _: Machine) -> list[Outcome]:
    CALLS["toy.probe"] += 1
    scales = [cast("ProbeParams", member.params).scale for member in members]
    weights = [member.one("weights")["weights"][0] for member in members]
    return [Outcome({"square": s * w**2}) for s, w in zip(scales, weights, strict=True)]


def _mean(members: Sequence[Member], _: Machine) -> list[Outcome]:
    CALLS["toy.mean"] += 1
    outcomes = []
    for member in members:
        nodes = member.inputs["of"]
        values = [float(v) for n in nodes if n.status == "ok" for v in _numbers(n)]
        bad = sum(node.status == "diverged" for node in nodes)
        mean = np.mean(values) if values else np.nan
        outcomes.append(
            Outcome(
                {
                    "mean": np.array(mean, np.float64),
                    "count": np.array(len(values)),
                    "diverged": np.array(bad),
                }
            )
        )
    return outcomes


def _numbers(node):
    return [a for a in node.arrays.values() if a.ndim == 0 and a.dtype.kind == "f"]


@contextmanager
def toy_kinds() -> Iterator[None]:
    """Make the toy kinds known, and forget them again."""
    added = {kind.name: kind for kind in (POINTS, FIT, PROBE, MEAN)}
    functions = {"points": _points, "fit": _fit, "probe": _probe, "mean": _mean}
    with mock.patch.dict(kinds._added, added):
        for name, function in functions.items():
            computes(f"toy.{name}")(function)
        CALLS.clear()
        WIDTHS.clear()
        yield
    for name in functions:
        # Only these: built-in functions register once, when their file is loaded.
        del registry._implementations[f"toy.{name}"]


STUDY = """
study: toys
axes:
  seed: 3
  rule: {slow: {lr: 0.25}, fast: {lr: 0.75}}
stages:
  data: {use: toy.points}
  fit: {use: toy.fit, data: data, lr: "${rule.lr}", seed: "${seed}"}
  last: {use: toy.probe, weights: fit}
  path: {use: toy.probe, weights: fit, at: all, scale: 3.0}
  mean: {use: toy.mean, of: last, over: seed}
"""


def opened(
    store: Store, *overrides: str, text: str = STUDY, folder=None
) -> OpenedStudy:
    """Resolve the toy study against a store."""
    study = load_study(text, file="toys.yaml", overrides=overrides)
    return OpenedStudy(study, store, SourceFiles(folder or Path()), Path("results"))


def run(store: Store, *overrides: str, text: str = STUDY, folder=None) -> RunReport:
    """Run the toy study on a store."""
    o = opened(store, *overrides, text=text, folder=folder)
    options = RunOptions(workers=1)  # no other process knows these kinds
    return run_study(o.study, o.store, o.files, options=options)
