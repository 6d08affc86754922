"""Kinds that break their promises harm themselves alone."""

import io
import sys

import numpy as np
import pytest

from curvflow.errors import RequestError
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.run.context import Unwatched
from curvflow.flows.run.run import run_study
from curvflow.schemas import kinds
from curvflow.schemas.kind import Variable
from curvflow.schemas.nodes import Data, Outcome
from curvflow.schemas.params import Params
from curvflow.tasks import registry
from curvflow.tasks.stage import stage
from tests.flows.run.test_run import executed
from tests.flows.toys import opened, run

STUDY = """
study: faulty
axes: {seed: 4}
stages:
  data: {use: toy.points}
  mine: {use: probe.mine, data: data, seed: "${seed}"}
"""
VALUE = Variable("value", "a number")


class Seed(Params):
    """A seed."""

    seed: int = 0


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch):
    monkeypatch.setattr(kinds, "_added", dict(kinds._added))
    yield
    registry._implementations.pop("probe.mine", None)


def define(function, outputs=(VALUE,)):
    """Make a function of (data, seed) the kind `probe.mine`."""

    @stage("probe.mine", version=1, outputs=list(outputs))
    def mine(data: Data, params: Seed):
        return function(data, params.seed)

    return mine


def failures(store):
    report = run(store, text=STUDY)
    return [failure["error"] for failure in report.record.failures]


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (None, "expected a mapping of variables, got None"),
        ({}, "expected the declared variable value, got nothing"),
        ({"value": np.zeros(3)}, "with the dimensions (), got an array of shape (3,)"),
        ({"value": 3}, "expected value of float64, got int64"),
        ({"value": 1.0, "other": 2.0}, "expected declared variables, got 'other'"),
        (
            Outcome({"value": 1.0}),  # type: ignore[dict-item] # wrong on purpose
            "expected value as an array, got float. Make it one by numpy.asarray",
        ),
    ],
    ids=["nothing", "lacking", "shape", "type", "undeclared", "no array"],
)
def test_results_are_held_to_their_declaration(store, result, error):
    define(lambda data, seed: result)
    assert all(error in said for said in failures(store))
    assert len(failures(store)) == 4


def test_two_variables_must_agree_on_a_dimension(store):
    outputs = [Variable("a", "a", ("k",)), Variable("b", "b", ("k",))]
    define(lambda data, seed: {"a": np.zeros(2), "b": np.zeros(3)}, outputs)
    assert "expected b with 2 entries along k, got 3" in failures(store)[0]


def test_an_exit_is_a_failure_of_its_node_alone(store):
    define(lambda data, seed: sys.exit(3) if seed == 2 else {"value": 1.0})
    assert failures(store) == ["SystemExit: 3"]


def test_a_failure_costs_siblings_no_second_try(store):
    calls = []

    def once(data, seed):
        calls.append(seed)
        return {"value": 1.0 / (3 - seed)}

    define(once)
    assert len(failures(store)) == 1
    assert calls == [0, 1, 2, 3]


def test_what_a_node_writes_into_its_inputs_its_siblings_do_not_see(store):
    def greedy(data, seed):
        data["inputs"][:] += 1
        return {"value": data["inputs"].sum()}

    define(greedy)
    report = run(store, text=STUDY)
    nodes = report.plan.graph.nodes["mine"]
    values = [float(store.read(n.receipt, ["value"])["value"]) for n in nodes]
    assert values == [10.0] * 4


def test_labels_with_equal_parameters_fail_together(store):
    text = STUDY.replace('seed: "${seed}"', 'seed: "${rule.s}"')
    text = text.replace("seed: 4", "rule: {a: {s: 1}, b: {s: 1}}")
    define(lambda data, seed: 1 / 0)
    report = run(store, text=text)
    assert report.record.counts["failed"]["mine"] == 2
    assert [f["coords"] for f in report.record.failures] == [
        {"rule": "a"},
        {"rule": "b"},
    ]


def test_a_failure_is_remembered_until_it_is_mended(store):
    define(lambda data, seed: 1 / 0 if seed == 1 else {"value": 1.0})
    report = run(store, text=STUDY)
    o = opened(store, text=STUDY)

    plan = make_plan(o.study, o.store, o.files)
    node = plan.graph.nodes["mine"][1]
    assert plan.causes.of(node) == [
        "failed in run 1: ZeroDivisionError: division by zero"
    ]
    assert "Traceback" in plan.causes.traceback(node)
    assert len(plan.causes.failures()) == len(report.record.failures) == 1
    define(lambda data, seed: {"value": 1.0})
    assert executed(run(store, text=STUDY)) == {"mine": 1}


def test_two_kinds_of_one_name_are_refused():
    define(lambda data, seed: {"value": 1.0})
    with pytest.raises(RequestError, match=r"expected a name of its own for .*other"):

        @stage("probe.mine", version=1, outputs=[VALUE])
        def other(data: Data):
            return {"value": 2.0}

    with pytest.raises(RequestError, match=r"got that of a built-in kind"):

        @stage("probe.norms", version=1, outputs=[VALUE])
        def norms(data: Data):
            return {"value": 2.0}


def test_a_file_that_changes_while_a_run_goes_on_is_not_believed(store, tmp_path):
    text = """
study: files
axes: {}
stages:
  data: {use: data.array, path: mine.npz}
"""
    path = tmp_path / "mine.npz"
    arrays = {"inputs": np.arange(6.0).reshape(6, 1), "targets": np.arange(6) % 2}
    np.savez(path, **arrays)
    o = opened(store, text=text, folder=tmp_path)

    class Meddler(Unwatched):
        def begin(self, plan):
            np.savez(path, **(arrays | {"inputs": np.ones((6, 1))}))

    report = run_study(o.study, o.store, o.files, observer=Meddler())
    (failure,) = report.record.failures
    assert "got one that has changed since. Run again" in failure["error"]
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    path.write_bytes(buffer.getvalue())
    again = opened(store, text=text, folder=tmp_path)
    assert executed(run_study(again.study, store, again.files)) == {"data": 1}


def test_a_run_leaves_the_callers_threads_as_they_were(store):
    import torch

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        run(store)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
