"""A small project of a user's own, and nodes that its code computes."""

import shutil
from pathlib import Path

import curvflow
from curvflow.flows.graph.graph import Node, Taken
from curvflow.flows.plan.code.fingerprints import Code, Fingerprints
from curvflow.schemas.keys import Encoded, canonical
from curvflow.schemas.kind import Input, Kind
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.nodes import Numbers, Weights
from curvflow.schemas.params import Params

PACKAGE = Path(curvflow.__file__).parent

FILES = {
    "lab/__init__.py": '''
"""The laboratory: what others may use."""

from lab.near import measure
from lab.shapes import Ball as Round
''',
    "lab/kinds.py": '''
"""Kinds of the laboratory."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import curvflow
import numpy as np
from curvflow import Params, Variable, Weights, stage
from lab import Round, measure
from lab.tables import NORMS

if TYPE_CHECKING:
    from lab.words import Words

SCALE = 2.0
OUTPUTS = (Variable("value", "a value"),)


class SharpnessParams(Params):
    """What may be chosen."""

    power: float = 1.0

    def exponent(self) -> float:
        return self.power * 2


@stage("probe.sharpness", version=1, outputs=OUTPUTS)
def sharpness(weights: Weights, params: SharpnessParams) -> dict[str, object]:
    """Measure the sharpness."""
    values = weights["weights"]
    squares = [value * value for value in values]  # all of them
    ball = Round(sum(squares))
    norm = NORMS["l1"](values)
    return {"value": np.asarray(SCALE * measure(ball.volume(), norm, sharp=True))}


@curvflow.stage("probe.plain", version=1, outputs=OUTPUTS)
def plain(weights: Weights) -> dict[str, object]:
    return {"value": weights["weights"].max()}


def unrelated(x):
    return x + SCALE
''',
    "lab/near.py": '''
"""One module away."""

from .middle import weigh


def measure(volume, norm, *, sharp=False):
    def added(x):
        return x + norm

    try:
        return added(weigh(volume))
    except ValueError as problem:
        raise RuntimeError(sharp) from problem
''',
    "lab/middle.py": '''
"""Two modules away."""

import lab.far as distant


def weigh(x):
    from math import floor as down

    return distant.tare(x) + down(x)
''',
    "lab/far.py": '''
"""Three modules away."""

LIMIT = 10.0


def _rounder(digits):
    calls = 0

    def rounded(x):
        nonlocal calls
        calls += 1
        return round(x, digits)

    return rounded


def tare(x):
    y = _rounder(3)(x)
    return min(y, LIMIT)


def shown(x):
    text = f"{x:.3f}"
    return locals()
''',
    "lab/shapes.py": '''
"""Classes."""

from dataclasses import dataclass

import beside


class Shape:
    sides = 0

    def describe(self):
        return f"{self.sides} sides"


@dataclass
class Ball(Shape):
    """A ball."""

    radius: float = 1.0
    centre: float = 0.0

    def volume(self) -> float:
        return beside.FACTOR * self.radius**3

    def moved(self, by):
        return Ball(self.radius, self.centre + by)
''',
    "beside.py": "FACTOR = 4.19\nOTHER = 1\n",
    "lab/tables.py": """
def l1(values):
    return abs(values).sum()


def l2(values):
    return (values**2).sum()


def linf(values):
    return abs(values).max()


NORMS = {"l1": l1}
NORMS["l2"] = l2
""",
    "lab/words.py": "Words = str\n",
    "lab/models.py": """
import torch
from lab.far import tare

WIDTH = 3


def make(width=WIDTH):
    return torch.nn.Linear(2, int(tare(width)))


def other():
    return torch.nn.Linear(1, 1)
""",
    "lab/points.py": """
import numpy as np


def make(count: int = 4):
    drawn = np.arange(count)
    return drawn[:, None], drawn % 2
""",
}


class NoParams(Params):
    """Nothing to choose."""


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def copy_package(folder: Path) -> Path:
    """Copy this package, to be edited."""
    target = folder / "curvflow"
    shutil.copytree(PACKAGE, target, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def own_kind(name: str, home: str, params: type[Params] = NoParams) -> Kind:
    return Kind(
        name=name,
        version=1,
        summary="",
        params=params,
        returns=Numbers,
        outputs=(),
        inputs={"weights": Input(Weights)},
        home=home,
    )


def node(kind: str | Kind, params: dict | None = None, **inputs: Node) -> Node:
    kind = find_kind(kind) if isinstance(kind, str) else kind
    taken: dict[str, tuple[Taken, ...]] = {
        name: (Taken(producer, ()),) for name, producer in inputs.items()
    }
    model = kind.params.model_validate(params or {})
    return Node("s", kind, (), (), model, {}, Encoded(canonical({})), taken)


def fit(model: dict, rule: dict) -> Node:
    return node("train", {"model": model, "rule": rule, "epochs": 1})


MLP = {"kind": "mlp", "hidden": [2]}
LINEAR = {"kind": "linear"}
SGD = {"rule": "sgd", "lr": 0.1}
ADAM = {"rule": "adam"}
FACTORY = {"factory": "lab.models:make"}


def nodes() -> dict[str, Node]:
    """Return nodes that run built-in code, the user's, and both."""
    made = {
        "points": node("data.factory", {"factory": "lab.points:make"}),
        "sgd": fit(MLP, SGD),
        "adam": fit(MLP, ADAM),
        "linear": fit(LINEAR, SGD),
        "factory": fit(FACTORY, SGD),
    }
    sharpness = own_kind("probe.sharpness", "lab.kinds:sharpness")
    plain = own_kind("probe.plain", "lab.kinds:plain")
    return made | {
        "norms": node("probe.norms", weights=made["adam"]),
        "norms_linear": node("probe.norms", weights=made["linear"]),
        "norms_factory": node("probe.norms", weights=made["factory"]),
        "sharpness": node(sharpness, weights=made["sgd"]),
        "plain": node(plain, weights=made["sgd"]),
    }


def codes(folder: Path, package: Path | None = None) -> dict[str, Code]:
    fingerprints = Fingerprints(folder, package)
    return {name: fingerprints.of(producer) for name, producer in nodes().items()}


def moved(before: dict[str, Code], after: dict[str, Code]) -> dict[str, set[str]]:
    """Return, of nodes whose fingerprints differ, the definitions that do."""
    return {
        name: {
            definition
            for definition in {**old.definitions, **after[name].definitions}
            if old.definitions.get(definition)
            != after[name].definitions.get(definition)
        }
        for name, old in before.items()
        if old.fingerprint != after[name].fingerprint
    }
