"""The commands that answer questions: plan, why, show, log, export, schema."""

import csv
import io
import json
import re

import pytest
import xarray as xr

from curvflow.cli.arguments import print_json


@pytest.fixture
def ran(after, study):
    return after(study, ("run",))


def test_plan_json_has_the_promised_form(curvflow, study):
    said = json.loads(curvflow("plan", study, "--json").out)
    counts = ["study", "total", "cached", "stale", "waiting", "stages"]
    assert list(said)[: len(counts)] == counts
    times = ["predicted_seconds", "must_run_seconds", "saved_seconds"]
    assert {"causes", "unknown_cost_nodes", *times} <= set(said)
    assert (said["total"], said["stale"], said["waiting"]) == (16, 1, 15)
    assert list(said["stages"]["fit"]) == [
        "kind",
        "total",
        "cached",
        "stale",
        "waiting",
        "reasons",
        "continues",
        "removed",
        "in_work",
    ]


def test_plan_makes_no_store(curvflow, study):
    curvflow("plan", study)
    assert [path.name for path in study.parent.iterdir()] == ["tiny.yaml"]


def test_plan_fits_80_columns_and_says_when_there_is_nothing_to_do(curvflow, ran):
    out = curvflow("plan", ran).out
    assert "nothing to do" in out
    assert max(map(len, out.splitlines())) <= 80


def test_why_names_old_and_new_value(curvflow, ran):
    changed = ("--set", "stages.trace.seed=5")
    said = curvflow("why", ran, "trace[seed=0,rule=sgd]", *changed)
    assert said.out == "trace[seed=0,rule=sgd]: stale: parameter seed: 0 -> 5\n"


def test_why_compares_a_new_node_with_the_nearest_result(curvflow, ran):
    said = curvflow("why", ran, "fit[seed=2,rule=sgd]", "--set", "axes.seed=3")
    assert "fit[seed=2,rule=sgd]: stale: new" in said.out
    assert "nearest earlier result: fit[" in said.out
    assert "parameter seed: " in said.out


def test_why_says_done_of_a_done_node(curvflow, ran):
    assert ": done, key " in curvflow("why", ran, "data").out


def test_show_json_gives_a_record_per_node_and_element(curvflow, ran):
    rows = json.loads(curvflow("show", ran, "eigen", "--json").out)
    ranked = [row for row in rows if "rank" in row]
    assert len(ranked) == 2 * 2 * 2
    names = {"seed", "rule", "status", "rank", "eigenvalues", "residuals", "converged"}
    assert names <= set(ranked[0])
    assert sum("iterations" in row for row in rows) == 2 * 2


def test_show_reports_the_time_of_each_training(curvflow, ran):
    rows = json.loads(curvflow("show", ran, "fit", "--json").out)
    assert [row["seconds_per_epoch"] for row in rows] == [
        r["seconds"] / 4 for r in rows
    ]
    (line, *_) = csv.DictReader(io.StringIO(curvflow("show", ran, "fit", "--csv").out))
    assert float(line["seconds"]) == rows[0]["seconds"] > 0
    where = ("--where", "seed=0", "--where", "rule=sgd")
    lines = curvflow("show", ran, "fit", *where).out.splitlines()
    totals = {line.split()[0]: line.split()[-1] for line in lines}
    assert (totals["seconds"], totals["seconds_per_epoch"]) == ("s", "epoch")


def test_show_where_keeps_the_nodes_requested(curvflow, ran):
    where = ("--where", "rule=adam", "--where", "seed=1")
    rows = json.loads(curvflow("show", ran, "trace", "--json", *where).out)
    assert {(row["seed"], row["rule"]) for row in rows} == {(1, "adam")}


def test_show_csv_and_the_table_on_disk_agree(curvflow, ran):
    said = curvflow("show", ran, "table", "--csv").out
    on_disk = (ran.parent / "results/tiny/table.csv").read_text()
    assert said == on_disk
    rows = list(csv.DictReader(io.StringIO(said)))
    assert {"rule", "quantity", "units", "mean", "sd", "sem", "count"} <= set(rows[0])


def test_show_leaves_out_what_was_measured_nowhere_until_all_is_requested(
    curvflow, ran
):
    short, whole = (curvflow("show", ran, "table", *a).out for a in ((), ("--all",)))
    shown, named = short.split("\nleft out, measured at no node: ")
    assert "final_validation_loss" not in shown
    assert "final_validation_loss" in named
    assert len(short.splitlines()) < 100
    assert "final_validation_loss" in whole
    names = {
        row["quantity"]
        for row in json.loads(curvflow("show", ran, "table", "--json").out)
    }
    assert names <= set(whole.split())


def test_show_reports_the_units_of_a_single_column(curvflow, ran):
    out = curvflow("show", ran, "table", "--variable", "mean").out
    assert re.search(r"trace +loss / parameter\^2 +\d", out)
    assert "as the quantity" not in out


def test_what_was_never_computed_is_reported_on_stderr(curvflow, study):
    said = curvflow("show", study, "table")
    assert (said.code, said.out.split()[:3]) == (0, ["status", "=", "missing"])
    assert said.err == "table: no result yet at 2 of 2 nodes. Run the study.\n"


def test_show_without_a_stage_lists_them(curvflow, ran):
    out = curvflow("show", ran).out
    assert [line.split()[0] for line in out.splitlines()] == [
        "stage",
        "data",
        "fit",
        "trace",
        "eigen",
        "table",
        "loss",
    ]


def test_the_list_of_stages_holds_many_axes_within_80_columns(curvflow, tmp_path):
    axes = [f"number_of_kind_{n}" for n in range(6)]
    sizes = "".join(f"  {axis}: [2, 3]\n" for axis in axes)
    hidden = ", ".join(f'"${{{axis}}}"' for axis in axes)
    (tmp_path / "wide.yaml").write_text(
        f"study: wide\naxes:\n{sizes}stages:\n  data: {{use: data.xor}}\n"
        "  fit: {use: train, data: data, rule: {rule: sgd, lr: 0.1}, epochs: 1,\n"
        f"        model: {{kind: mlp, hidden: [{hidden}]}}}}\n"
    )
    out = curvflow("show", tmp_path / "wide.yaml").out
    assert max(map(len, out.splitlines())) <= 80
    assert set(axes) <= set(out.replace(",", " ").split())
    _, data, fit, *below = out.splitlines()
    assert data.endswith("  1 missing   none")
    column = data.index("none")
    assert fit[column:].startswith("number_of_kind_0,")
    assert all(line[:column].isspace() for line in below)


def test_show_run_goes_back_in_time(curvflow, ran):
    before = curvflow("show", ran, "trace", "--json").out
    change = ("--set", "stages.trace.num_probes=6")
    curvflow("run", ran, *change)
    after = curvflow("show", ran, "trace", "--json", *change).out
    assert before != after
    assert curvflow("show", ran, "trace", "--json", "--run", "1").out == before
    assert curvflow("show", ran, "trace", "--json", "--run", "2").out == after


def test_log_lists_the_runs(curvflow, ran):
    curvflow("run", ran)
    rows = json.loads(curvflow("log", ran, "--json").out)
    assert [(r["run"], r["status"], r["executed"]) for r in rows] == [
        (1, "done", 16),
        (2, "done", 0),
    ]
    assert len(curvflow("log", ran).out.splitlines()) == 2


def test_exports_hold_the_same_numbers(curvflow, ran, tmp_path):
    rows = json.loads(curvflow("show", ran, "trace", "--json").out)
    expected = [row["trace"] for row in rows if "trace" in row]
    for suffix, load in (
        ("nc", lambda p: xr.load_dataset(p, engine="h5netcdf")),
        ("zarr", lambda p: xr.load_dataset(p, engine="zarr", consolidated=False)),
    ):
        path = tmp_path / f"trace.{suffix}"
        assert curvflow("export", ran, "trace", "-o", path).code == 0
        got = load(path)["trace"]
        assert got.dims == ("seed", "rule")
        assert got.attrs["units"] == "loss / parameter^2"
        assert got.values.ravel().tolist() == pytest.approx(expected, rel=1e-15)
    for suffix in ("csv", "parquet"):
        path = tmp_path / f"t.{suffix}"
        assert curvflow("export", ran, "trace", "-o", path).code == 0
    from pyarrow import parquet

    table = parquet.read_table(tmp_path / "t.parquet").to_pylist()
    assert [r["trace"] for r in table if r.get("trace") is not None] == expected


def test_show_json_without_a_stage_counts_every_stage(curvflow, ran):
    said = json.loads(curvflow("show", ran, "--json").out)
    assert list(said) == ["data", "fit", "trace", "eigen", "table", "loss"]
    assert said["trace"] == {
        "kind": "probe.hessian_trace",
        "dims": ["seed", "rule"],
        "ok": 4,
        "diverged": 0,
        "failed": 0,
        "missing": 0,
        "removed": 0,
    }


def test_flat_exports_say_what_they_leave_out_until_it_is_named(curvflow, ran):
    said = curvflow("export", ran, "fit", "-o", "made/on/the/way/fit.csv")
    assert said.err.startswith("left out: ")
    assert "train_loss" in said.err
    assert said.err.endswith("; name them with --variable\n")
    said = curvflow("export", ran, "fit", "-o", "fit.csv", "--variable", "train_loss")
    assert said.err == ""
    rows = list(csv.DictReader((ran.parent / "fit.csv").read_text().splitlines()))
    assert len(rows) > 4
    assert all(float(row["train_loss"]) >= 0 for row in rows)
    whole = curvflow("export", ran, "fit", "-o", "fit.nc")
    assert (whole.code, whole.err) == (0, "")


def test_an_export_that_cannot_be_written_is_one_line(curvflow, ran):
    said = curvflow("export", ran, "trace", "-o", "tiny.yaml/trace.csv")
    assert said.code == 1
    assert said.err.count("\n") == 1


def test_json_holds_neither_nan_nor_infinity(capsys):
    print_json({"a": [float("inf"), float("nan"), -float("inf"), 1.5]})
    assert json.loads(capsys.readouterr().out) == {"a": [None, None, None, 1.5]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["show", "tiny.yaml", "trace", "--json", "--csv"],
            "--json cannot be combined",
        ),
        (["show", "tiny.yaml", "--where", "seed=1"], "expected STAGE with --where"),
        (["show", "tiny.yaml", "trac"], "Did you mean 'trace'?"),
        (["show", "tiny.yaml", "trace", "--where", "sed=1"], "Did you mean 'seed'?"),
        (["show", "tiny.yaml", "trace", "--where", "seed=9"], "expected one of its"),
        (["show", "tiny.yaml", "trace", "--where", "seed"], "expected axis=label"),
        (["show", "tiny.yaml", "trace", "--variable", "tracee"], "'trace'?"),
        (
            ["show", "tiny.yaml", "trace", "--run", "7"],
            "expected a run from 1 to 1, got 7.",
        ),
        (["why", "tiny.yaml", "fit[seed=0"], "expected STAGE[axis=value,...]"),
        (["why", "tiny.yaml", "fit[bad]"], "fit: expected axis=label, got 'bad'. "),
        (["why", "tiny.yaml", "fut"], "Did you mean 'fit'?"),
        (["export", "tiny.yaml", "trace", "-o", "t.xls"], "expected a name that ends"),
    ],
)
def test_wrong_questions_are_one_line_and_exit_code_2(
    curvflow, ran, arguments, message
):
    said = curvflow(*arguments)
    assert said.code == 2
    assert message in said.err
    assert said.err.count("\n") == 1


def test_schema_is_json(curvflow):
    assert "$schema" in json.loads(curvflow("schema").out)


def test_init_writes_a_study_that_plans_and_refuses_to_overwrite(curvflow, tmp_path):
    folder = tmp_path / "new"
    assert curvflow("init", folder).code == 0
    assert json.loads(curvflow("plan", folder / "study.yaml", "--json").out)["total"]
    again = curvflow("init", folder)
    assert again.code == 2
    assert "got a file that exists" in again.err


def test_why_code_tells_the_modules_that_count_as_a_whole(curvflow, tmp_path):
    lab = (
        "from curvflow import Data, Variable, stage\n\nT = {}\nfor i in (1,):\n"
        "    T[i] = 2\n\n\n"
        "@stage('told.size', version=1, outputs=(Variable('v', 'v'),))\n"
        "def size(data: Data):\n    return {'v': data['inputs'].sum() * T[1]}\n"
    )
    (tmp_path / "told_lab.py").write_text(lab)
    study = tmp_path / "told.yaml"
    study.write_text(
        "study: told\nstages:\n  data: {use: data.xor}\n"
        "  size: {use: 'told_lab:size', data: data}\n"
    )
    said = curvflow("why", study, "--code").out
    assert said.splitlines() == [
        "told.size: 3 definitions of yours in 1 module",
        "  whole    told_lab: line 4: `For` at module level",
    ]
    (found,) = json.loads(curvflow("why", study, "--code", "--json").out)
    assert found["whole"] == {"told_lab": "line 4: `For` at module level"}
    assert found["definitions"].keys() == {f"told_lab:{n}" for n in ("T", "i", "size")}
    assert curvflow("why", study, "size", "--code").code == 2


def test_why_code_of_built_in_kinds_has_nothing_to_tell(curvflow, ran):
    assert curvflow("why", ran, "--code").out == (
        "no kind of this study runs code of yours\n"
    )
