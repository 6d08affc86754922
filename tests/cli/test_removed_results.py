"""Results whose arrays `gc` has removed are told as such, and stay in the log."""

import json

import pytest

import curvflow as library
from curvflow.errors import RemovedPayloadError

GONE = (
    "fit: expected the arrays of its results, got none: collection has removed them. "
    "Run the study with --revive fit to compute them again."
)
NOTICE = (
    "fit: collection has removed the arrays of 4 results. "
    "Run the study with --revive fit to compute them again.\n"
)


@pytest.fixture
def collected(after, study):
    """Return a study whose trained weights are gone for good."""
    drop = ("gc", "--drop", "train", "--yes")
    return after(study, ("run",), drop, drop)


def log(study):
    folder = study.parent / ".curvflow/commits"
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("run", [(), ("--run", 1)], ids=["now", "run-1"])
def test_show_reports_removed_results_and_leaves_the_log_alone(
    curvflow, collected, run
):
    before = log(collected)
    said = curvflow("show", collected, "fit", "--json", *run)
    assert (said.code, said.err) == (0, NOTICE)
    rows = json.loads(said.out)
    assert [set(row) for row in rows] == [{"seed", "rule", "status"}] * 4
    assert {row["status"] for row in rows} == {"removed"}
    table = curvflow("show", collected, "fit", *run)
    assert table.out.startswith("status = removed\n")
    assert curvflow("show", collected, "fit", "--csv", *run).out.count("removed") == 4
    assert "4 removed" in curvflow("show", collected, *run).out
    counts = json.loads(curvflow("show", collected, "--json", *run).out)
    assert (counts["fit"]["removed"], counts["fit"]["ok"]) == (4, 0)
    assert counts["table"]["removed"] == 0
    assert log(collected) == before


def test_export_diff_and_open_leave_the_log_alone(curvflow, collected):
    before = log(collected)
    flat = curvflow("export", collected, "fit", "-o", "fit.csv")
    assert (flat.code, NOTICE in flat.err) == (0, True)
    assert (collected.parent / "fit.csv").read_text().count("removed") == 4
    said = curvflow("export", collected, "fit", "-o", "fit.zarr")
    assert (said.code, said.err) == (1, f"curvflow: {GONE}\n")
    for number in (None, 1):
        with pytest.raises(RemovedPayloadError) as raised:
            library.open(collected, run=number)["fit"]
        assert str(raised.value) == GONE
    assert log(collected) == before
    assert curvflow("run", collected, "--set", "stages.fit.epochs=6").code == 0
    curvflow("gc", collected, "--drop", "train", "--yes")
    curvflow("gc", collected, "--drop", "train", "--yes")
    before = log(collected)
    (difference,) = json.loads(
        curvflow("diff", collected, "--stage", "fit", "--json").out
    )["stages"].values()
    assert (difference["changed"], difference["gone"]) == (4, 4)
    assert log(collected) == before


def test_a_removed_table_is_reported_by_check_and_comes_back(curvflow, study):
    study.write_text(
        study.read_text() + "expect:\n  - {stage: trace, where: {seed: 0, rule: sgd}, "
        "quantity: trace, value: 1.0, within: 9.0, source: a guess}\n"
    )
    curvflow("run", study)
    for _ in range(2):
        for kind in ("probe.hessian_trace", "aggregate.summary"):
            curvflow("gc", study, "--drop", kind, "--yes")
    before = log(study)
    said = curvflow("check", study)
    assert said.code == 1
    assert said.out.startswith("not measured")
    assert "Run the study with --revive trace" in said.err
    assert curvflow("show", study).out.count("removed") == 2  # trace and table
    table = curvflow("show", study, "table")
    assert "removed" in table.out
    assert log(study) == before
    again = curvflow("run", study)
    assert "table: 2 results revived, digests equal" in again.out


def test_what_lies_in_the_trash_is_revived_and_stays(curvflow, study):
    curvflow("run", study)
    curvflow("gc", study, "--drop", "train", "--yes")
    said = curvflow("run", study, "--revive", "fit", "--revive", "trace")
    lines = said.out.splitlines()
    assert "fit: 4 results revived, digests equal" in lines
    assert "trace: nothing was removed" in lines
    again = curvflow("run", study, "--revive", "fit")
    assert "fit: nothing was removed" in again.out
    curvflow("gc", study, "--yes")
    assert "removed" not in curvflow("show", study, "fit").out
    assert library.open(study)["fit"].train_loss.load().notnull().all()


def test_a_run_says_what_it_revived_and_what_was_not_removed(curvflow, collected):
    said = curvflow("run", collected, "--revive", "fit", "--revive", "trace")
    lines = said.out.splitlines()
    assert "fit: 4 results revived, digests equal" in lines
    assert "trace: nothing was removed" in lines
    shown = curvflow("show", collected, "fit", "--run", 1)
    assert (shown.err, "removed" in shown.out) == ("", False)
    assert library.open(collected, run=1)["fit"].train_loss.load().notnull().all()
    again = curvflow("run", collected, "--revive", "fit")
    assert "fit: nothing was removed" in again.out
    assert set(json.loads(curvflow("run", collected, "--json").out)) == {
        "study",
        "run",
        "seconds",
        "executed",
        "cached",
        "failed",
        "diverged",
        "unconverged",
        "verdicts",
        "made_without",
    }
