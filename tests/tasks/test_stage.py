"""Kinds of the user's own, defined and used as in a notebook."""

import json

import numpy as np
import pytest

from curvflow.errors import RequestError
from curvflow.schemas import kinds
from curvflow.schemas.kind import Variable
from curvflow.schemas.nodes import Data, Numbers, Weights
from curvflow.schemas.params import Params
from curvflow.tasks.stage import stage
from tests.tasks.scripts import script

NOTEBOOK = '''
import json
from pathlib import Path

import numpy as np

import curvflow
from curvflow import Data, Outcome, Params, Variable, Weights


class SharpnessParams(Params):
    """Settings of the probe."""

    radius: float = 0.1


@curvflow.stage(
    "probe.largest_weight",
    version=1,
    outputs=[
        Variable("largest", "largest absolute weight", units="parameter"),
        Variable("count", "samples seen", dtype="int64"),
    ],
)
def largest_weight(weights: Weights, data: Data, params: SharpnessParams):
    """Scale the largest absolute weight by a radius."""
    return {
        "largest": params.radius * np.abs(weights["weights"]).max().astype(float),
        "count": np.array(len(data["inputs"])),
    }


Path("study.yaml").write_text("""
study: notebook
axes: {seed: 3}
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: mlp, hidden: [3]},
        rule: {rule: sgd, lr: 0.1}, seed: "${seed}", epochs: 3}
  mine: {use: probe.largest_weight, weights: fit, radius: 2.0}
  table: {use: aggregate.summary, of: mine, over: seed}
""")
for _ in range(2):
    results = curvflow.run("study.yaml")
    print(json.dumps(results.run.counts["executed"]))
mine = results["mine"]
counts = mine["count"].values.tolist()
print(json.dumps([list(mine.largest.dims), mine.largest.units, counts]))
in_table = results["table"]["mean"].sel(quantity="largest")
print(float(mine.largest.mean()) == float(in_table))
'''


@pytest.mark.processes
def test_a_notebook_defines_a_kind_and_runs_it(tmp_path):
    ended, printed, said = script(NOTEBOOK, tmp_path)
    assert (ended, said) == (0, "")
    first, second, seen, equal = printed.splitlines()
    assert json.loads(first) == {"data": 1, "fit": 3, "mine": 3, "table": 1}
    assert set(json.loads(second).values()) == {0}
    assert json.loads(seen) == [["seed"], "parameter", [4, 4, 4]]
    assert equal == "True"


@pytest.fixture
def _forgotten(monkeypatch):
    monkeypatch.setattr(kinds, "_added", {})


@pytest.mark.usefixtures("_forgotten")
def test_arguments_declare_the_inputs():
    class Settings(Params):
        """Nothing."""

    @stage("probe.mine", version=3, outputs=[Variable("x", "a number")])
    def mine(weights: Weights, data: Data, settings: Settings):
        """Say it in one line.

        And more below.
        """
        return {"x": np.array(0.0)}

    kind = kinds.find_kind("probe.mine")
    assert kind is mine.kind
    assert (kind.version, kind.summary) == (3, "Say it in one line.")
    assert kind.params is Settings
    assert kind.returns is Numbers
    assert kind.inputs["weights"].edge is Weights
    assert kind.inputs["data"].follows == "weights"


def test_an_argument_without_a_meaning_is_refused():
    with pytest.raises(RequestError, match="expected argument 'lr' annotated with"):

        @stage("probe.bad", version=1, outputs=[])
        def bad(weights: Weights, lr: float):
            return {}
