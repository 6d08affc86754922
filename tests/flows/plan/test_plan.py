"""What a plan says before anything runs."""

import numpy as np
import pytest

from curvflow.errors import RequestError, StudyError
from curvflow.flows.plan.plan import is_analysis, make_plan, refuse_computing
from tests.flows.toys import CALLS, STUDY, opened, run


def plan(store, *overrides, text=STUDY, folder=None):
    o = opened(store, *overrides, text=text, folder=folder)
    return make_plan(o.study, o.store, o.files).as_json()


def test_an_empty_store_leaves_sources_stale_and_the_rest_waiting(store):
    said = plan(store)
    assert {k: said[k] for k in ("total", "cached", "stale", "waiting")} == {
        "total": 33,
        "cached": 0,
        "stale": 1,
        "waiting": 32,
    }
    assert said["stages"]["fit"] == {
        "kind": "toy.fit",
        "total": 6,
        "cached": 0,
        "stale": 0,
        "waiting": 6,
        "reasons": [{"cause": "waits for data", "nodes": 6}],
        "continues": [],
        "removed": 0,
        "in_work": 0,
    }


def test_planning_computes_and_writes_nothing(store):
    plan(store)
    assert not CALLS
    assert store.index().number == 0


def test_a_finished_study_is_all_cached(store):
    run(store)
    said = plan(store)
    assert (said["cached"], said["stale"], said["waiting"]) == (33, 0, 0)
    assert all(stage["reasons"] == [] for stage in said["stages"].values())


def test_a_changed_parameter_is_named_with_old_and_new_value(store):
    run(store)
    said = plan(store, "stages.last.scale=2.0")["stages"]
    cause = {"cause": "parameter scale: 1.0 -> 2.0", "nodes": 6}
    assert said["last"]["reasons"] == [cause]
    assert said["mean"]["reasons"] == [{"cause": "waits for last", "nodes": 2}]
    assert said["fit"]["cached"] == 6


def test_a_plan_that_makes_tables_alone_is_distinguished_from_one_that_computes(store):
    run(store)
    for overrides, missing in (
        ([], ""),
        (["stages.mean.quantities=[square]"], ""),
        (["axes.seed=4"], "2 of fit, 2 of last, 6 of path"),
    ):
        o = opened(store, *overrides)
        made = make_plan(o.study, o.store, o.files)
        assert is_analysis(made) == (missing == "")
        if missing:
            with pytest.raises(RequestError, match=missing):
                refuse_computing(made)
        else:
            refuse_computing(made)


def test_a_new_seed_is_new_and_the_aggregate_waits_for_it(store):
    run(store)
    said = plan(store, "axes.seed=4")["stages"]
    assert said["fit"]["reasons"] == [{"cause": "new", "nodes": 2}]
    assert said["mean"]["waiting"] == 2


def test_what_a_collection_removes_while_a_plan_is_made_stays_done(store, monkeypatch):
    run(store)
    receipts = store.index().receipts.values()
    payload = next(r.payload for r in receipts if r.stage == "last")
    present = store.present

    def as_collection_goes_on(payloads):
        store.evict([payload], "test")
        return present(payloads) - {payload}

    monkeypatch.setattr(store, "present", as_collection_goes_on)
    said = plan(store)
    assert (said["cached"], said["stale"], said["waiting"]) == (33, 0, 0)
    assert said["stages"]["last"]["removed"] > 0


def test_a_raised_version_is_named(store, monkeypatch):
    run(store)
    from dataclasses import replace

    from curvflow.schemas import kinds
    from tests.flows.toys import PROBE

    monkeypatch.setitem(kinds._added, "toy.probe", replace(PROBE, version=2))
    said = plan(store)["stages"]["last"]
    assert said["reasons"] == [{"cause": "version 1 -> 2", "nodes": 6}]


def test_epochs_are_a_dimension_of_probes_at_several_checkpoints(store):
    o = opened(store)
    graph = make_plan(o.study, o.store, o.files).graph
    assert o.study.stages["path"].dims == ("seed", "rule", "epoch")
    points = [node.point for node in graph.nodes["path"]]
    assert points[:4] == [
        (0, "slow", 0),
        (0, "slow", 2),
        (0, "slow", 4),
        (0, "fast", 0),
    ]
    taken = graph.nodes["path"][1].inputs["weights"][0].parts
    assert taken == ("weights@2", "network")


def test_a_probe_takes_the_data_its_weights_were_trained_on(store):
    o = opened(store)
    graph = make_plan(o.study, o.store, o.files).graph
    (data,) = graph.nodes["data"]
    assert all(n.inputs["data"][0].node is data for n in graph.nodes["last"])


def test_aggregates_are_broadcast_over_the_dims_of_all_they_take(store):
    both = STUDY.replace("of: last", "of: [last, path]")
    o = opened(store, text=both)
    graph = make_plan(o.study, o.store, o.files).graph
    assert o.study.stages["mean"].dims == ("rule", "epoch")
    node = graph.nodes["mean"][0]
    stages = [taken.node.stage for taken in node.inputs["of"]]
    assert stages == ["last"] * 3 + ["path"] * 3


def test_a_missing_file_is_refused_with_its_place(store, tmp_path):
    text = """
study: files
axes: {}
stages:
  data: {use: data.array, path: nowhere.npz}
"""
    with pytest.raises(StudyError, match=r"expected a readable file, got .*nowhere"):
        plan(store, text=text, folder=tmp_path)


@pytest.mark.parametrize("inputs", ["{ids: tokens, mask: shown}", "[tokens, shown]"])
def test_data_of_several_inputs_are_planned_with_what_takes_them(
    store, tmp_path, inputs
):
    np.savez(
        tmp_path / "rows.npz",
        tokens=np.zeros((6, 3), int),
        shown=np.ones((6, 3), int),
        targets=np.arange(6) % 2,
    )
    text = f"""\
study: several
stages:
  data: {{use: data.array, path: rows.npz, inputs: {inputs}}}
  fit: {{use: train, data: data, model: {{factory: "collections:Counter"}},
        rule: {{rule: sgd, lr: 0.1}}, epochs: 1, loss: cross_entropy}}
  top: {{use: probe.eigenvalues, weights: fit, k: 1}}
"""
    assert plan(store, text=text, folder=tmp_path)["total"] == 3
