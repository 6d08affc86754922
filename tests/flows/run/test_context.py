"""What a run has done and what failed, counted by stage."""

from curvflow.flows.graph.tiles import Failed
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.run.context import Counts
from tests.flows.toys import opened, run

FAILED = Failed("ValueError: no", "lines")


def graph_of(store, *overrides):
    study = opened(store, *overrides)
    return make_plan(study.study, study.store, study.files).graph


def test_failures_are_counted_once_for_each_node_whether_at_once_or_again(store):
    run(store)
    graph = graph_of(store, "axes.seed=5")
    stale = [node for node in graph.nodes["fit"] if node.state == "stale"]
    counts = Counts(graph)
    assert len(stale) == 4
    assert counts.done["fit"] == 6
    counts.fail(stale[:1], FAILED)
    counts.fail(stale[2:], FAILED)
    assert counts.failed("fit") == 3
    assert counts.failed("data") == 0
    assert counts.by_outcome()["failed"]["fit"] == 3
    assert [record["key"] for record in counts.failure_records()] == [
        stale[number].key for number in (0, 2, 3)
    ]
    counts.recount()
    assert counts.failed("fit") == 3


def test_a_node_that_succeeds_after_all_is_no_failure(store):
    graph = graph_of(store)
    (data,) = graph.nodes["data"]
    counts = Counts(graph)
    counts.fail([data], FAILED)
    assert counts.failed("data") == 1
    data.state = "cached"
    counts.recount()
    assert (counts.failed("data"), counts.done["data"]) == (0, 1)
    assert counts.failure_records() == []
