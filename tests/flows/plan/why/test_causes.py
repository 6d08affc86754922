"""Root causes, what must run and what may follow, and the chain of one node."""

from dataclasses import replace

import pytest

from curvflow.flows.plan.plan import make_plan
from curvflow.flows.plan.why.explain import explain
from curvflow.schemas import kinds
from tests.flows.toys import PROBE, STUDY, opened, run


def plan(store, *overrides, text=STUDY):
    o = opened(store, *overrides, text=text)
    return make_plan(o.study, o.store, o.files)


def causes(store, *overrides, text=STUDY):
    """Return what runs and what may follow, by cause."""
    said = plan(store, *overrides, text=text).as_json()["causes"]
    return {cause["cause"]: (cause["runs"], cause["may_follow"]) for cause in said}


def why(store, stage, *overrides, **where):
    return str(explain(plan(store, *overrides), stage, where)[0]).splitlines()


def test_an_empty_store_has_one_cause_and_all_of_it_must_run(store):
    runs = {"data": 1, "fit": 6, "last": 6, "path": 18, "mean": 2}
    assert causes(store) == {"never computed": (runs, {})}


def test_a_finished_study_has_no_cause(store):
    run(store)
    assert causes(store) == {}


def test_what_waits_for_changed_data_may_follow(store):
    run(store)
    may_follow = {"fit": 6, "last": 6, "path": 18, "mean": 2}
    expected = {"data: parameter count: 4 -> 8": ({"data": 1}, may_follow)}
    assert causes(store, "stages.data.count=8") == expected


def test_a_new_label_names_the_axis_and_everything_behind_it_must_run(store):
    run(store)
    runs = {"fit": 4, "last": 4, "path": 12, "mean": 2}
    assert causes(store, "axes.seed=5") == {"new seed 3, 4": (runs, {})}


def test_a_node_with_a_change_of_its_own_runs_whatever_it_waits_for(store):
    run(store)
    by_cause = causes(store, "stages.data.count=8", "stages.last.scale=2.0")
    assert by_cause["last: parameter scale: 1.0 -> 2.0"] == ({"last": 6}, {"mean": 2})
    assert by_cause["data: parameter count: 4 -> 8"] == (
        {"data": 1},
        {"fit": 6, "path": 18},
    )


def test_new_epochs_follow_from_the_training_that_goes_on_longer(store):
    run(store)
    (cause,) = causes(store, "stages.fit.epochs=8")
    assert cause == "fit: parameter epochs: 4 -> 8"


def test_a_raised_version_is_one_cause_for_all_stages_of_the_kind(store, monkeypatch):
    run(store)
    monkeypatch.setitem(kinds._added, "toy.probe", replace(PROBE, version=2))
    expected = {"last": 6, "path": 15}, {"mean": 2}
    by_cause = causes(store)["toy.probe: version 1 -> 2"]
    assert (by_cause[0].keys(), by_cause[1]) == (expected[0].keys(), expected[1])


def test_a_change_that_is_done_since_is_still_the_root_of_what_it_left(store):
    run(store)
    alone = "study: alone\naxes: {}\nstages: {data: {use: toy.points, count: 8}}"
    run(store, text=alone)
    by_cause = causes(store, "stages.data.count=8")
    runs, may_follow = by_cause["data: parameter count: 4 -> 8"]
    assert runs == {"fit": 6}
    assert may_follow == {"last": 6, "path": 18, "mean": 2}
    assert why(store, "fit", "stages.data.count=8", seed="0", rule="slow") == [
        "fit[seed=0,rule=slow]: stale: input `data` changed",
        "  since data: parameter count: 4 -> 8 (done since)",
    ]


def test_what_another_study_has_under_the_same_name_explains_nothing(store):
    other = "study: other\naxes: {}\nstages: {data: {use: toy.points, count: 8}}"
    run(store, text=other)
    runs = {"data": 1, "fit": 6, "last": 6, "path": 18, "mean": 2}
    assert causes(store) == {"never computed": (runs, {})}
    assert why(store, "data") == [
        "data: stale: new",
        "  nearest earlier result: data of other",
        "    parameter count: 8 -> 4",
    ]
    run(store, "stages.data.count=2")
    by_cause = causes(store)
    assert [*by_cause] == ["data: parameter count: 2 -> 4"]


def test_a_failure_is_a_cause_and_blocks_what_follows(store):
    run(store, "axes.seed=[0, 13]")
    by_cause = causes(store, "axes.seed=[0, 13]")
    (cause,) = by_cause
    assert cause == "fit: failed in run 1: RuntimeError: seed 13 is unlucky"
    assert by_cause[cause][0]["fit"] == 2


def test_a_result_struck_off_shows_the_reason(store):
    run(store)
    node = plan(store).graph.nodes["last"][0]
    store.retire([node.key], "a chunk is missing")
    (cause,) = causes(store)
    assert cause == "last: earlier result struck off: a chunk is missing"


def test_a_lost_payload_is_a_cause_and_nothing_follows(store):
    run(store)
    node = plan(store).graph.nodes["data"][0]
    del store._payloads[node.receipt.payload]
    assert causes(store) == {"data: payload lost": ({"data": 1}, {})}


def test_the_chain_leads_from_a_table_to_the_root(store):
    run(store)
    assert why(store, "mean", "stages.data.count=8", rule="slow") == [
        "mean[rule=slow]: waiting: waits for last",
        "  since last[seed=0,rule=slow] and 2 more: waits for data; waits for fit",
        "  since fit[seed=0,rule=slow] and 2 more: waits for data",
        "  since data: parameter count: 4 -> 8",
    ]


def test_a_new_node_is_compared_with_the_result_that_differs_least(store):
    run(store)
    answer = explain(plan(store, "axes.seed=5"), "fit", {"seed": "4", "rule": "fast"})
    assert answer[0].nearest.coords["rule"] == "fast"
    assert [text.split(":")[0] for text in answer[0].differs] == ["parameter seed"]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [(1, True, "1 -> true"), (1.0, 1, "1.0 -> 1"), (None, "null", "null -> 'null'")],
)
def test_values_are_reported_as_a_study_writes_them(old, new, text):
    from curvflow.flows.plan.why.nearest import _parameters

    (change,) = _parameters({"a": {"b": old}}, {"a": {"b": new}})
    assert change.text == f"parameter a.b: {text}"
