"""History on the command line: diff, log, causes and time."""

import json
import re

import pytest

from curvflow.schemas.records.receipts import Pin, Settlement
from curvflow.stores.open import open_store

SMALL = """\
study: small
axes:
  seed: 2
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: mlp, hidden: [2]},
        rule: {rule: sgd, lr: 0.1}, seed: "${seed}", epochs: 2}
  norm: {use: probe.norms, weights: fit}
  table: {use: aggregate.summary, of: [fit, norm], over: seed}
"""
LONGER = ("--set", "stages.fit.epochs=3")


@pytest.fixture
def ran(after, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return after(path, ("run",))


def fits(text):
    return max(map(len, text.splitlines())) <= 80


def test_plan_shows_causes_time_and_what_is_saved(curvflow, ran):
    out = curvflow("plan", ran, *LONGER).out
    assert "cause 1  fit: parameter epochs: 2 -> 3" in out
    assert "up to 2 norm, 1 table nodes may follow" in " ".join(out.split())
    assert "predicted on one worker for 5 nodes" in out
    assert "reuse 16.7 %" in out
    assert fits(out)


def test_why_without_a_node_shows_all_causes(curvflow, ran):
    assert curvflow("why", ran).out == "nothing to do\n"
    out = curvflow("why", ran, *LONGER).out
    assert out.startswith("  cause 1  fit: parameter epochs: 2 -> 3")
    (cause,) = json.loads(curvflow("why", ran, *LONGER, "--json").out)
    assert cause["changes"] == [
        {"what": "parameter", "name": "epochs", "old": 2, "new": 3}
    ]
    assert (cause["runs"], cause["may_follow"]) == (
        {"fit": 2},
        {"norm": 2, "table": 1},
    )


def test_why_follows_a_node_up_to_the_root(curvflow, ran):
    out = curvflow("why", ran, "table", *LONGER).out
    assert out.splitlines()[-1] == (
        "  since fit[seed=0] and 1 more: parameter epochs: 2 -> 3; "
        "2 nodes continue from epoch 2 to 3"
    )
    (answer,) = json.loads(curvflow("why", ran, "table", *LONGER, "--json").out)
    assert answer["chain"][-1]["causes"] == ["parameter epochs: 2 -> 3"]


def test_diff_needs_two_finished_runs(curvflow, ran):
    said = curvflow("diff", ran)
    assert said.code == 2
    assert said.err == (
        "curvflow: diff: expected two finished runs of small, got 1. "
        "`curvflow run` makes another.\n"
    )


def test_diff_shows_counts_first_and_then_numbers(curvflow, ran):
    curvflow("run", ran, *LONGER)
    said = curvflow("diff", ran)
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[0] == "small: run 1 -> run 2"
    heads = ["stage", "added", "removed", "changed", "recomputed", "same"]
    assert lines[1].split() == heads
    assert lines[3].split() == ["fit", "0", "0", "2", "0", "0"]
    assert "in errors" in said.out
    assert fits(said.out)
    differences = json.loads(curvflow("diff", ran, "1", "2", "--json").out)
    assert (differences["before"], differences["after"]) == (1, 2)
    assert differences["stages"]["table"]["rows"][0]["statistic"] == "mean"
    only = json.loads(curvflow("diff", ran, "--stage", "data", "--json").out)
    assert list(only["stages"]) == ["data"]
    assert curvflow("diff", ran, "1", "1").out.endswith("no result differs\n")
    assert "got 9. `curvflow log` lists" in curvflow("diff", ran, "1", "9").err


def test_log_shows_pins_and_on_request_what_else_happened(curvflow, ran):
    store = open_store(ran.parent / ".curvflow", create=False)
    index = store.index()
    store.pin(Pin("paper", index.runs[0].begun, "figure 2"))
    store.settle([Settlement("train", [["a", "b"]], "only renamed")])
    store.retire(list(index.receipts)[:2], "a chunk is missing")
    assert curvflow("log", ran).out.endswith("6 executed  [paper]\n")
    out = curvflow("log", ran, "--all").out
    assert [line.strip() for line in out.splitlines()[1:]] == [
        "pinned paper: figure 2",
        "accepted code of train: only renamed",
        "struck off 2 results (1 data, 1 fit): a chunk is missing",
    ]
    (row,) = json.loads(curvflow("log", ran, "--json").out)
    assert (row["pins"], row["failed"], row["status"]) == (["paper"], 0, "done")


def test_log_says_of_a_run_that_is_at_work_that_it_is(curvflow, ran):
    from curvflow.flows.graph.heartbeats import beating
    from curvflow.flows.graph.stopping import Stopping

    store = open_store(ran.parent / ".curvflow", create=False)
    run = store.begin_run("small", document={}, environment={}, options={})
    assert json.loads(curvflow("log", ran, "--json").out)[-1]["status"] == "interrupted"
    with beating(store, run, Stopping(), silence=60):
        assert json.loads(curvflow("log", ran, "--json").out)[-1]["status"] == "running"


def test_log_and_runs_show_minutes_and_fit_80_columns(curvflow, ran):
    from curvflow.flows.graph.heartbeats import beating
    from curvflow.flows.graph.stopping import Stopping

    (row,) = json.loads(curvflow("log", ran, "--json").out)
    when = row["started"][:16].replace("T", " ")
    assert f"   1  {when}  done " in curvflow("log", ran).out
    store = open_store(ran.parent / ".curvflow", create=False)
    name = "a_study_with_quite_a_long_name_as_it_were"
    run = store.begin_run(name, document={}, environment={}, options={})
    with beating(store, run, Stopping(), silence=60):
        out = curvflow("runs", ran).out
    assert "began (UTC)" in out.splitlines()[0]
    assert " running  20" in out.splitlines()[1]
    assert fits(out)


def test_log_shows_what_was_removed_and_what_was_rerun(curvflow, ran):
    curvflow("gc", ran, "--drop", "train", "--yes")
    assert curvflow("run", ran, "--rerun", "probe.norms").code == 0
    out = curvflow("log", ran, "--all").out
    assert " removed 1 payload (1 fit): collected\n" in out
    assert " rerun of probe.norms: 2 results struck off\n" in out


def test_diff_says_that_what_differs_is_below_rtol(curvflow, ran):
    curvflow("run", ran, *LONGER)
    out = curvflow("diff", ran, "--stage", "norm", "--rtol", "5").out
    assert out.endswith("norm: 2 changed; none by more than --rtol 5\n")
    table = curvflow("diff", ran, "--stage", "table", "--rtol", "5").out
    assert table.endswith("table: 1 changed; none by more than --rtol 5\n")
    shown = curvflow("diff", ran, "--stage", "norm").out
    assert "largest at" in shown
    assert "unit = parameter\n" in shown
    assert "unit" in curvflow("diff", ran, "--stage", "fit").out
    assert "unit" not in curvflow("diff", ran, "--stage", "fit", "--rtol", "0.3").out
    wrong = curvflow("diff", ran, "--stage", "nrm")
    assert wrong.err == (
        "curvflow: --stage: expected a stage of either run, got 'nrm'. "
        "Did you mean 'norm'?\n"
    )


def test_plan_says_from_which_epoch_a_training_continues(curvflow, ran):
    longer = "           2 nodes continue from epoch 2 to 3\n"
    assert longer in curvflow("plan", ran, *LONGER).out
    assert longer in curvflow("why", ran, *LONGER).out
    one_seed = ("--set", "axes.seed=1")
    longer = "           1 node continues from epoch 2 to 3\n"
    assert longer in curvflow("plan", ran, *LONGER, *one_seed).out


def test_why_of_a_node_says_from_which_epoch_it_continues(curvflow, ran):
    assert curvflow("why", ran, "fit[seed=0]", *LONGER).out == (
        "fit[seed=0]: stale: parameter epochs: 2 -> 3\n"
        "  1 node continues from epoch 2 to 3\n"
    )
    (said,) = json.loads(curvflow("why", ran, "fit[seed=0]", *LONGER, "--json").out)
    begin = {"param": "epochs", "from": 2, "to": 3, "nodes": 1}
    assert said["continues"] == [begin]
    (cause,) = json.loads(curvflow("why", ran, *LONGER, "--json").out)
    assert cause["continues"] == [begin | {"nodes": 2}]


def test_plan_says_how_long_a_run_takes_to_start(curvflow, ran):
    start = json.loads(curvflow("plan", ran, "--json").out)["start_seconds"]
    record = open_store(str(ran.parent / ".curvflow"), create=False).index().runs[0]
    assert 0 < start < record.seconds
    out = curvflow("plan", ran, *LONGER).out
    assert re.search(r"\nplus (~\d+|under 1) s to start and to write results\n", out)
    assert "plus" not in curvflow("plan", ran).out  # nothing to do


def test_a_long_cause_is_laid_out_within_80_columns(curvflow, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [f"curvature_of_the_network_number_{n}" for n in range(9)]
    stages = "".join(
        f"  {name}: {{use: probe.norms, weights: fit}}\n" for name in names
    )
    (tmp_path / "small.yaml").write_text(SMALL.replace("  norm:", stages + "  norm:"))
    out = curvflow("why", "small.yaml").out
    assert fits(out)
    events = [line.strip() for line in out.splitlines()]
    assert events[:2] == [
        "cause 1  never computed",
        f"24 nodes run: 1 data, 2 fit, 2 {names[0]},",
    ]
    assert all(re.match(r"\d", line) for line in events[2:-1])  # a count with its stage
