"""`curvflow run` as a person or a script meets it."""

import json
import signal
import subprocess
import sys
import time
from shlex import quote, split

import pytest

STAGES = ["data", "fit", "trace", "eigen", "table", "loss"]


def test_run_json_counts_what_was_executed_then_nothing(curvflow, study):
    first = json.loads(curvflow("run", study, "--json").out)
    assert (first["study"], first["run"]) == ("tiny", 1)
    counts = dict(zip(STAGES, [1, 4, 4, 4, 2, 1], strict=True))
    assert first["executed"] == counts
    second = curvflow("run", study, "--json")
    assert second.code == 0
    said = json.loads(second.out)
    assert set(said["executed"].values()) == {0}
    assert said["cached"] == counts
    assert said["run"] == 2
    assert second.err == ""


@pytest.mark.pictures
def test_run_names_the_files_it_leaves(curvflow, study):
    said = curvflow("run", study)
    assert "run 1 executed 16 nodes" in said.out
    assert said.out.splitlines()[-2:] == [
        "  results/tiny/table.csv",
        "  results/tiny/loss.{png,svg,pdf}",
    ]
    for name in ("table.csv", "loss.png", "loss.svg", "loss.pdf"):
        assert (study.parent / "results/tiny" / name).stat().st_size > 100


@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_another_study_of_the_name_in_the_folder_is_told(curvflow, study, quote):
    text = study.read_text()
    other = study.with_name("other.yaml")
    other.write_text(text.replace("study: tiny", f"study: {quote}tiny{quote} # mine"))
    study.with_name("third.yaml").write_text(text.replace("study: tiny", "study: two"))
    study.with_name("list.yaml").write_text("- study: tiny\n")
    said = curvflow("run", study).err.splitlines()
    (told,) = (line for line in said if "one study of a name" in line)
    assert told == (
        "curvflow: expected one study of a name in a folder, got tiny in other.yaml "
        "too, so that each overwrites the other's results/tiny. Give each a name of "
        "its own."
    )
    other.unlink()
    assert "one study of a name" not in curvflow("run", study).err


def test_a_deleted_figure_is_written_again_without_computing(curvflow, study):
    curvflow("run", study)
    figure = study.parent / "results/tiny/loss.png"
    before = figure.read_bytes()
    figure.unlink()
    said = json.loads(curvflow("run", study, "--json").out)
    assert set(said["executed"].values()) == {0}
    assert figure.read_bytes() == before


def test_profile_and_set_override_the_study(curvflow, study):
    curvflow("run", study)
    more = json.loads(curvflow("run", study, "--profile", "more", "--json").out)
    assert more["executed"] == dict(zip(STAGES, [0, 2, 2, 2, 2, 1], strict=True))
    command = ("run", study, "--set", "axes.seed=4", "--json")
    assert json.loads(curvflow(*command).out)["executed"]["fit"] == 2


def test_a_planted_divergence_ends_well_and_is_counted(curvflow, study):
    calm = json.loads(curvflow("run", study, "--json").out)
    wild = "axes.rule.wild={rule: sgd, lr: 1.0e+6}"
    said = curvflow("run", study, "--json", "--set", wild)
    assert said.code == 0
    counts = json.loads(said.out)
    assert counts["diverged"]["fit"] == 2
    assert counts["diverged"]["trace"] == 2
    assert counts["executed"]["fit"] == 2
    assert counts["failed"] == dict.fromkeys(STAGES, 0)
    assert calm["diverged"]["fit"] == 0
    lines = curvflow("run", study, "--set", wild).out.splitlines()
    (line,) = [line for line in lines if line.startswith("diverged: ")]
    assert line.startswith("diverged: fit[seed=0,rule=wild] and 1 more: loss above")
    rows = json.loads(curvflow("show", study, "trace", "--json", "--set", wild).out)
    reasons = {row["reason"] for row in rows if row["rule"] == "wild"}
    assert reasons
    assert all(reason.startswith("input train diverged: ") for reason in reasons)
    rows = json.loads(curvflow("show", study, "table", "--json", "--set", wild).out)
    by_rule = {row["rule"]: row for row in rows if row["quantity"] == "trace"}
    assert by_rule["wild"]["diverged"] == 2
    assert by_rule["wild"]["count"] == 0
    assert by_rule["sgd"]["diverged"] == 0
    assert by_rule["sgd"]["count"] == 2


def test_a_failed_node_ends_with_exit_code_1_and_its_error(curvflow, study):
    (study.parent / "no_nets.py").write_text(
        "def broken(*args, **kwargs):\n    raise RuntimeError('no net today')\n"
    )
    factory = 'stages.fit.model={factory: "no_nets:broken", kwargs: {}}'
    said = curvflow("run", study, "--set", factory)
    assert said.code == 1
    lines = said.out.splitlines()
    (line,) = [line for line in lines if line.startswith("failed: ")]
    assert line.startswith("failed: fit[seed=0,rule=sgd] and 3 more: ")
    assert "no net today" in line
    same = f"curvflow why {study} --set {quote(factory)} 'fit[seed=0,rule=sgd]'"
    assert f"`{same}` prints the traceback" in lines
    cells = {words[0]: words[1:] for words in map(str.split, lines) if words}
    assert cells["stage"] == ["executed", "cached", "diverged", "failed", "blocked"]
    assert cells["data"] == ["1", "0", "0", "0", "0"]
    assert cells["fit"] == ["0", "0", "0", "4", "0"]
    assert cells["trace"] == ["0", "0", "0", "0", "4"]
    why = curvflow(*split(same)[1:])
    assert "Traceback (most recent call last)" in why.out
    shown = curvflow("show", study, "fit", "--set", factory)
    line = "fit: failed at 4 of 4 nodes. `curvflow why STUDY fit` says why.\n"
    assert (shown.code, shown.err) == (0, line)


@pytest.mark.parametrize(("words", "whole"), [(60, True), (4000, False)])
def test_a_failure_is_told_with_its_remedy(curvflow, study, words, whole):
    text = " ".join(f"word{number}" for number in range(words)) + ". Take the remedy."
    (study.parent / f"nets{words}.py").write_text(
        f"def broken(*args, **kwargs):\n    raise RuntimeError({text!r})\n"
    )
    factory = f'stages.fit.model={{factory: "nets{words}:broken", kwargs: {{}}}}'
    said = curvflow("run", study, "--set", factory)
    (line,) = [line for line in said.out.splitlines() if line.startswith("failed: ")]
    assert "word0 word1 " in line
    assert line.endswith(f" word{words - 1}. Take the remedy.. Correct it.")
    assert len(line) <= 600
    assert (text in line, "[...]" in line) == (whole, not whole)


def test_a_failed_label_leaves_tables_and_figures_of_the_others(curvflow, study):
    (study.parent / "some_nets.py").write_text(
        "from torch import nn\n\n\ndef net(seed):\n"
        "    if seed:\n        raise RuntimeError('no net today')\n"
        "    return nn.Linear(2, 1)\n"
    )
    factory = 'stages.fit.model={factory: "some_nets:net", kwargs: {seed: "${seed}"}}'
    said = curvflow("run", study, "--set", factory)
    assert said.code == 1
    hint = f"`curvflow run {study} --set {quote(factory)} --partial` makes tables"
    assert hint in " ".join(said.out.split())
    said = curvflow("run", study, "--set", factory, "--partial")
    assert said.code == 1
    lines = " ".join(said.out.split())
    assert (
        "table: made without 2 of 4 nodes of trace, which failed: trace[seed" in lines
    )
    assert "loss: made without 2 of 4 nodes of fit, which failed: fit[seed=1" in lines
    assert hint not in lines
    cells = {
        words[0]: words[1:] for words in map(str.split, said.out.splitlines()) if words
    }
    assert cells["table"] == ["2", "0", "0", "0", "0"]
    assert cells["loss"] == ["1", "0", "0", "0", "0"]
    counted = json.loads(
        curvflow("run", study, "--set", factory, "--partial", "--json").out
    )
    assert counted["made_without"].keys() == {"table", "loss"}
    assert counted["made_without"]["loss"][0] in lines
    shown = curvflow("show", study, "table", "--json", "--set", factory)
    assert {row["failed"] for row in json.loads(shown.out) if "mean" in row} == {3}
    assert "table: made without 2 of 4 nodes of fit, which failed" in shown.err
    curvflow("report", study, "-o", "page.html", "--set", factory)
    page = study.with_name("page.html").read_text()
    assert "Made without 2 of 4 nodes of fit, which failed: fit[seed=1" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.yaml"], "expected a study file, got none: No such file"),
        (["tiny.yaml", "--set", "axes.sed=3"], "axes.sed"),
        (["tiny.yaml", "--set", "stages.fit.epochs=-1"], "stages.fit.epochs"),
        (["tiny.yaml", "--profile", "moor"], "Did you mean 'more'?"),
        (["tiny.yaml", "--store", "ftp://bucket/x"], "s3://"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_code_2(
    curvflow, study, arguments, message
):
    said = curvflow("run", *arguments)
    assert said.code == 2
    assert said.out == ""
    assert message in said.err
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.err


def test_cuda_is_refused_by_name_where_there_is_none(curvflow, study):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    said = curvflow("run", study, "--device", "cuda")
    assert said.code == 2
    assert "expected a CUDA device" in said.err


@pytest.mark.processes
def test_ctrl_c_twice_stops_at_once_with_exit_code_130(study):
    (study.parent / "nets.py").write_text(
        "import pathlib, time\n"
        "def slow(*args, **kwargs):\n"
        "    pathlib.Path('begun').touch()\n"
        "    time.sleep(60)\n"
    )
    factory = 'stages.fit.model={factory: "nets:slow", kwargs: {}}'
    program = "from curvflow.cli.app import main; main()"
    arguments = [sys.executable, "-c", program, "run", str(study), "--set", factory]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
        while not (study.parent / "begun").exists() and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        line = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130
    assert line + err == (
        "curvflow: stopping as soon as work is safe; once more to stop now\n"
        "curvflow: interrupted; finished tiles are kept, run again to go on\n"
    )
