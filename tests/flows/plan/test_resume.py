"""More epochs go on from fewer, and nobody can tell afterwards."""

from dataclasses import replace

import pytest

from curvflow.flows.plan.plan import make_plan
from curvflow.flows.plan.resume import ShorterResults
from curvflow.stores.memory import MemoryStore
from curvflow.tasks import registry
from tests.flows.plan.code.project import write
from tests.flows.toys import opened, run

STUDY = """
study: longer
axes:
  seed: 2
  rule: {sgd: {rule: sgd, lr: 0.1, momentum: 0.9}, adam: {rule: adam, lr: 0.01}}
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: mlp, hidden: [3]}, rule: "${rule}",
        seed: "${seed}", epochs: 4}
  norms: {use: probe.norms, weights: fit}
"""
NETS = """
import torch


def make():
    return torch.nn.Linear(2, 1)
"""


@pytest.fixture
def began(monkeypatch):
    """Epochs that trainings begin at, in order."""
    begins = []
    real = registry.find("train")

    def compute(members, machine):
        begins.extend(
            0 if m.earlier is None else int(m.earlier["epoch"][-1]) for m in members
        )
        return real.compute(members, machine)

    watched = replace(real, compute=compute)
    monkeypatch.setitem(registry._implementations, "train", watched)
    return begins


def epochs(number):
    return f"stages.fit.epochs={number}"


def digests(store):
    return {key: receipt.digest for key, receipt in store.index().receipts.items()}


def planned(store, *overrides):
    o = opened(store, *overrides, text=STUDY)
    return make_plan(o.study, o.store, o.files).as_json()


def test_more_epochs_give_the_results_of_one_go(store, began):
    at_once = MemoryStore()
    run(at_once, epochs(9), text=STUDY)
    run(store, text=STUDY)
    began.clear()
    run(store, epochs(9), text=STUDY)
    assert began == [4] * 4
    whole = digests(at_once)
    assert {key: digests(store)[key] for key in whole} == whole


def test_plan_says_where_a_longer_training_begins(store):
    run(store, text=STUDY)
    assert planned(store, epochs(9))["stages"]["fit"]["continues"] == [
        {"param": "epochs", "from": 4, "to": 9, "nodes": 4}
    ]
    assert planned(store, epochs(2))["stages"]["fit"]["continues"] == []


def test_the_longest_of_the_shorter_trainings_is_gone_on_from(store, began):
    for number in (2, 5, 3):
        run(store, epochs(number), text=STUDY)
    began.clear()
    run(store, epochs(7), text=STUDY)
    assert began == [5] * 4


def test_another_rule_seed_or_data_set_is_not_gone_on_from(store, began):
    run(store, text=STUDY)
    began.clear()
    run(store, epochs(9), "stages.fit.batch_size=2", text=STUDY)
    run(store, epochs(9), "axes.rule={sgd: {rule: sgd, lr: 0.2}}", text=STUDY)
    run(store, epochs(9), "stages.data.labels=index", text=STUDY)
    assert set(began) == {0}


def test_new_seeds_begin_at_the_beginning_with_old_ones_that_go_on(store, began):
    run(store, text=STUDY)
    began.clear()
    run(store, epochs(9), "axes.seed=3", text=STUDY)
    assert sorted(began) == [0, 0, 4, 4, 4, 4]


def test_a_training_whose_arrays_are_gone_is_not_gone_on_from(store, began):
    run(store, text=STUDY)
    fits = [r for r in store.index().receipts.values() if r.stage == "fit"]
    for payload in {receipt.payload for receipt in fits}:
        store.evict([payload], "room")
        del store._payloads[payload]
    began.clear()
    run(store, epochs(9), text=STUDY)
    assert set(began) == {0}


def test_a_diverged_training_is_not_gone_on_from(store, began):
    wild = "axes.rule={wild: {rule: sgd, lr: 1.0e+9}}"
    run(store, wild, text=STUDY)
    began.clear()
    run(store, wild, epochs(9), text=STUDY)
    assert set(began) == {0}


def test_a_shorter_training_that_cannot_be_read_is_struck_off(store, began):
    run(store, text=STUDY)
    for receipt in store.index().receipts.values():
        if receipt.stage == "fit":
            store._payloads[receipt.payload]["rule_state"] += 1
    began.clear()
    report = run(store, epochs(9), text=STUDY)
    assert not report.record.failures
    assert began[-4:] == [0] * 4


@pytest.mark.parametrize(
    "unknown",
    [
        lambda codes: {},
        lambda codes: {name: replace(code, form=0) for name, code in codes.items()},
    ],
    ids=["unrecorded", "another-form"],
)
def test_a_training_whose_code_cannot_be_compared_is_not_gone_on_from(store, unknown):
    run(store, text=STUDY)
    o = opened(store, epochs(9), text=STUDY)
    plan = make_plan(o.study, o.store, o.files)
    nodes = plan.graph.nodes["fit"]
    assert all(node.shorter for node in nodes)
    index = replace(plan.index, codes=unknown(plan.index.codes))
    ShorterResults(index, plan.codes, store, plan.reads).assign(nodes)
    assert not any(node.shorter for node in nodes)


def test_a_training_of_a_model_without_source_is_not_gone_on_from(
    store, began, tmp_path, monkeypatch
):
    files = {"source_gone_nets.py": NETS}
    write(tmp_path, files)
    monkeypatch.syspath_prepend(tmp_path)
    model = "stages.fit.model={factory: 'source_gone_nets:make'}"
    run(store, model, text=STUDY, folder=tmp_path)
    (tmp_path / "source_gone_nets.py").unlink()
    began.clear()
    run(store, model, epochs(9), text=STUDY, folder=tmp_path)
    assert set(began) == {0}
