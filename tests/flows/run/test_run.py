"""What runs the first time, the second time, and after a change."""

import numpy as np
import pytest

from curvflow.flows.run.run import run_json
from tests.flows.toys import CALLS, STUDY, WIDTHS, run

# Rules share their seed's initial weights, so epoch 0 is probed once per seed: 18 - 3.
NODES = {"data": 1, "fit": 6, "last": 6, "path": 18, "mean": 2}
EXPECTED = NODES | {"path": 15}


def executed(report):
    return {k: n for k, n in report.record.counts["executed"].items() if n}


def test_the_first_run_executes_every_node_in_few_tiles(store):
    report = run(store)
    assert executed(report) == EXPECTED
    assert CALLS["toy.fit"] == 1
    assert WIDTHS == [6]


def test_the_second_run_executes_nothing(store):
    run(store)
    CALLS.clear()
    report = run(store)
    assert executed(report) == {}
    assert report.record.counts["cached"] == NODES
    assert not CALLS


def test_one_more_seed_executes_only_its_nodes_and_the_aggregates(store):
    run(store)
    report = run(store, "axes.seed=4")
    assert executed(report) == {"fit": 2, "last": 2, "path": 5, "mean": 2}
    assert WIDTHS == [6, 2]


def test_one_missing_node_is_padded_and_never_computed_alone(store):
    only = ("axes.rule={slow: {lr: 0.25}}", "axes.seed=2")
    run(store, *only)
    run(store, only[0], "axes.seed=3")
    assert WIDTHS == [2, 2]


def test_a_changed_probe_executes_itself_and_what_follows(store):
    run(store)
    report = run(store, "stages.last.scale=2.0")
    assert executed(report) == {"last": 6, "mean": 2}


def test_going_back_executes_nothing(store):
    run(store)
    run(store, "stages.last.scale=2.0")
    assert executed(run(store)) == {}


def test_longer_training_leaves_probes_of_earlier_checkpoints_done(store):
    run(store)
    report = run(store, "stages.fit.epochs=6")
    assert executed(report) == {"fit": 6, "last": 6, "path": 6, "mean": 2}


def test_equal_results_stop_the_wave(store):
    """Every 2nd or every 4th checkpoint: the last weights are the same."""
    run(store)
    report = run(store, "stages.fit.every=4")
    assert executed(report) == {"fit": 6}


def test_renaming_the_study_and_its_probes_executes_nothing(store):
    run(store)
    renamed = STUDY.replace("study: toys", "study: other").replace("last", "final")
    report = run(store, text=renamed)
    # The aggregate names the stage it takes, so that its table can.
    assert executed(report) == {"mean": 2}


def test_stages_that_ask_the_same_share_results(store):
    """`path` with the scale of `last` finds the final epoch probed."""
    counts = run(store, "stages.path.scale=1.0").record.counts
    assert counts["executed"]["path"] == 9
    assert counts["cached"]["path"] == 9


def test_a_result_that_stands_at_two_nodes_is_counted_at_both(store):
    """Both rules share epoch 0 of a seed; a mean over rules must see two values."""
    text = STUDY.replace("of: last, over: seed", "of: path, over: [seed, rule]")
    report = run(store, text=text)
    first = report.plan.graph.nodes["mean"][0]
    assert int(store.read(first.receipt, ["count"])["count"]) == 6


def test_labels_with_equal_parameters_share_one_node(store):
    same = "axes.rule={one: {lr: 0.5}, two: {lr: 0.5}}"
    report = run(store, same, "axes.seed=2")
    assert executed(report)["fit"] == 2
    assert report.record.counts["cached"]["fit"] == 2


def test_divergence_is_a_result_and_leaves_siblings_alone(store):
    calm = run(store)
    wild = "axes.rule={slow: {lr: 0.25}, fast: {lr: 0.75}, wild: {lr: 9.0}}"
    report = run(store, wild)
    assert report.record.failures == []
    assert report.record.counts["diverged"]["fit"] == 3
    assert report.record.counts["diverged"]["last"] == 3
    # The first checkpoint came before the divergence and is sound.
    assert report.record.counts["diverged"]["path"] == 6
    assert digests(calm) <= digests(report)
    mean = report.plan.graph.nodes["mean"]
    counted = [store.read(n.receipt, ["count", "diverged"]) for n in mean]
    assert [int(c["count"]) for c in counted] == [3, 3, 0]
    assert [int(c["diverged"]) for c in counted] == [0, 0, 3]
    assert executed(run(store, wild)) == {}


def digests(report):
    nodes = [n for n in report.plan.graph if n.stage != "mean"]
    return {(n.key, n.receipt.digest) for n in nodes if n.receipt}


def test_a_failing_member_is_found_and_its_siblings_publish(store):
    report = run(store, "axes.seed=[1, 2, 13, 4]")
    counts = report.record.counts
    assert counts["failed"]["fit"] == 2
    assert counts["executed"]["fit"] == 6
    assert counts["executed"]["last"] == 6
    assert [f["coords"] for f in report.record.failures] == [
        {"seed": 13, "rule": "slow"},
        {"seed": 13, "rule": "fast"},
    ]
    assert "seed 13 is unlucky" in report.record.failures[0]["error"]
    assert "Traceback" in report.record.failures[0]["traceback"]


def test_the_next_run_tries_only_what_failed(store):
    run(store, "axes.seed=[1, 2, 13, 4]")
    WIDTHS.clear()
    report = run(store, "axes.seed=[1, 2, 13, 4]")
    assert executed(report) == {}
    assert report.record.counts["failed"]["fit"] == 2
    assert WIDTHS == [2, 2, 2]


def test_run_json_has_the_promised_form(store):
    report = run(store)
    said = run_json(report.record)
    assert list(said) == [
        "study",
        "run",
        "seconds",
        "executed",
        "cached",
        "failed",
        "diverged",
    ]
    assert said["study"] == "toys"
    assert said["run"] == 1
    assert all(set(said[k]) == set(EXPECTED) for k in list(said)[3:])


def test_values_are_those_of_the_toys(store):
    report = run(store)
    (slow, fast) = report.plan.graph.nodes["mean"]
    seeds = np.arange(1, 4)
    for node, lr in ((slow, 0.25), (fast, 0.75)):
        expected = np.mean((seeds * (1 - lr) ** 4) ** 2)
        got = store.read(node.receipt, ["mean"])["mean"]
        assert got == pytest.approx(expected, rel=1e-12)
