"""Tables and figures of what is there, where nodes that they reduce failed."""

import random

import numpy as np
import pytest

from curvflow.flows.api import results_of
from curvflow.flows.results.check import check
from curvflow.flows.results.results import Results
from curvflow.flows.run.run import run_study
from curvflow.schemas.options import RunOptions
from curvflow.tasks.drawing import canvas
from tests.flows import toys

STUDY = """
study: partly
axes:
  seed: [1, 2, 13, 4]
  rule: {slow: {lr: 0.25}, fast: {lr: 0.75}}
stages:
  data: {use: toy.points}
  fit: {use: toy.fit, data: data, lr: "${rule.lr}", seed: "${seed}"}
  last: {use: toy.probe, weights: fit}
  table: {use: aggregate.summary, of: last, over: [seed, rule], quantities: square}
  wide: {use: aggregate.join, of: [last], rows: [seed, rule]}
  compared: {use: aggregate.compare, of: last, along: rule, baseline: slow, over: seed,
             quantities: square, num_resamples: 100}
  forest: {use: figure.forest, of: compared}
  drawn: {use: figure.bars, of: last, y: square, label: seed, over: rule}
  each: {use: figure.bars, of: last, y: square, label: rule}
"""
TABLES = "\n".join(line for line in STUDY.splitlines() if "use: figure" not in line)


@pytest.fixture(autouse=True)
def _figures_are_not_drawn(monkeypatch):
    files = {kind: np.zeros(1, np.uint8) for kind in canvas.OMITTED}
    monkeypatch.setattr(canvas, "pictures", lambda _: files)
    monkeypatch.setattr(canvas, "compose", lambda *_, **given: None)


def run(store, *overrides, partial=True, text=STUDY):
    opened = toys.opened(store, *overrides, text=text)
    options = RunOptions(workers=1, partial=partial)
    return run_study(opened.study, opened.store, opened.files, options=options)


def states(report, stage):
    return [node.state for node in report.plan.graph.nodes[stage]]


def read(store, report, stage, *names):
    (node,) = report.plan.graph.nodes[stage]
    return store.read(node.receipt, [*names])


def test_without_the_option_what_needs_a_failed_node_is_not_run(store):
    report = run(store, partial=False)
    for stage in ("table", "wide", "compared", "forest", "drawn"):
        assert states(report, stage) == ["waiting"]
    assert states(report, "each") == ["cached", "cached", "waiting", "cached"]


def test_tables_and_figures_of_the_others_count_what_failed(store):
    report = run(store)
    assert {f["stage"] for f in report.record.failures} == {"fit"}
    table = read(store, report, "table", "count", "mean", "failed")
    assert (table["count"].item(), table["failed"].item()) == (6, 2)
    whole = run(store, "axes.seed=[1, 2, 4]")
    others = read(store, whole, "table", "mean")
    np.testing.assert_array_equal(table["mean"], others["mean"])
    assert read(store, report, "wide", "failed")["failed"].tolist() == [2] * 6
    caption = str(read(store, report, "drawn", "caption")["caption"])
    names = "last[seed=13,rule=slow], last[seed=13,rule=fast]"
    assert f"Failed, left out: 2 nodes, {names}." in caption
    forest = str(read(store, report, "forest", "caption")["caption"])
    assert "Compared without 2 nodes that failed." in forest


def test_a_comparison_whose_baseline_has_failed_says_so(store):
    sides = {"along": "seed", "baseline": 13, "over": "rule"}
    changed = [f"stages.compared.{name}={value}" for name, value in sides.items()]
    report = run(store, *changed, text=TABLES)
    errors = {f["stage"]: f["error"] for f in report.record.failures}
    assert errors.keys() == {"fit", "compared"}
    assert (
        "of last to compare at seed 13, got none: 2 nodes failed" in errors["compared"]
    )
    assert states(report, "table") == ["cached"]


def test_what_has_nothing_else_to_show_is_not_run(store):
    report = run(store)
    assert states(report, "each") == ["cached", "cached", "waiting", "cached"]
    every = run(store, "axes.seed=[13]")
    assert states(every, "table") == states(every, "drawn") == ["waiting"]


def test_a_partial_result_is_never_that_of_a_study_without_the_label(store):
    partial, whole = run(store), run(store, "axes.seed=[1, 2, 4]")
    for stage in ("table", "wide", "compared", "drawn"):
        (first,), (second,) = (r.plan.graph.nodes[stage] for r in (partial, whole))
        assert first.key != second.key
    assert "failed" not in whole.plan.graph.nodes["table"][0].receipt.parts


def test_the_same_failures_make_no_table_twice(store):
    run(store)
    again = run(store)
    assert sum(again.record.counts["executed"].values()) == 0
    assert states(again, "drawn") == ["cached"]


def test_the_run_in_which_it_succeeds_completes_them(store, monkeypatch):
    run(store)
    monkeypatch.setattr(toys, "UNLUCKY", set())
    report = run(store)
    assert report.record.failures == []
    assert {node.state for node in report.plan.graph} == {"cached"}
    assert not any(node.absent for node in report.plan.graph)
    table = read(store, report, "table", "count")
    assert table["count"].item() == 8
    assert "failed" not in report.plan.graph.nodes["table"][0].receipt.parts
    caption = str(read(store, report, "drawn", "caption")["caption"])
    assert "Failed" not in caption


@pytest.mark.parametrize("seed", range(3))
def test_whatever_fails_the_statistics_are_those_of_the_others(
    store, seed, monkeypatch
):
    draw = random.Random(seed)
    seeds = draw.sample(range(1, 40), 6)
    unlucky = set(draw.sample(seeds, draw.randint(1, 4)))
    monkeypatch.setattr(toys, "UNLUCKY", unlucky)
    lucky = [s for s in seeds if s not in unlucky]
    partial, others = (
        run(store, f"axes.seed={several}", text=TABLES) for several in (seeds, lucky)
    )
    for stage, names in (("table", ["mean", "sd"]), ("compared", ["mean", "p_t"])):
        got, expected = (read(store, r, stage, *names) for r in (partial, others))
        for name in names:
            np.testing.assert_array_equal(got[name], expected[name])
    failed = read(store, partial, "table", "failed")["failed"].item()
    assert failed == 2 * len(unlucky)


def test_partial_results_are_found_again_and_say_so(store):
    run(store)
    results = results_of(toys.opened(store, text=STUDY))
    assert isinstance(results, Results)
    assert results.view("drawn").counts() == {"ok": 1}
    assert results.view("forest").counts() == {"ok": 1}
    assert results.view("each").counts() == {"ok": 3, "missing": 1}
    (line,) = results.made_without("table")
    assert line.startswith(
        "made without 2 of 8 nodes of last, which failed: last[seed=13"
    )
    assert results.made_without("last") == []


def test_a_value_of_a_partial_table_is_in_doubt(store):
    expected = "{stage: table, quantity: square, value: 0, within: 99}"
    run(store, text=TABLES)
    opened = toys.opened(store, text=f"{TABLES}\nexpect:\n  - {expected}\n")
    (finding,) = check(results_of(opened), opened.study.expect)
    assert finding.doubts == "made without 2 failed nodes"
