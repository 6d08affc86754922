"""Asking and planning start fast: the heavy libraries stay unloaded."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

QUICKSTART = str(Path(__file__).parents[1] / "studies" / "quickstart.yaml")
HEAVY = (
    "torch",
    "dask",
    "distributed",
    "prefect",
    "matplotlib",
    "obstore",
    "PIL",
    "pooch",
    "scipy",
    "sklearn",
    "xarray",
    "zarr",
)
ENGINES = ("dask", "distributed", "prefect")
# What no tile of the tiny study needs; a table needs no torch either.
UNUSED = tuple(name for name in HEAVY if name not in ("torch", "scipy"))
TINY = """\
study: tiny
axes: {seed: 2}
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: mlp, hidden: [3]},
        rule: {rule: sgd, lr: 0.1}, seed: "${seed}", epochs: 2}
  table: {use: aggregate.summary, of: [fit], over: seed}
"""
# Refuses a library whether or not it is installed, so no proof here is empty.
GUARDED = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {heavy!r}:
            raise AssertionError(f"{{name}} was imported")

sys.meta_path.insert(0, Refuse())
{code}
"""
IMPORT_ALL = """
for name in sys.argv[1:]:
    try:
        __import__(name)
    except AssertionError as error:
        print(error)
"""
ASK = "sys.argv[0] = 'curvflow'; from curvflow.cli.app import main; sys.exit(main())"
NUMPY_TOLD = (
    "import atexit, sys; atexit.register(lambda: print('numpy._core' in "
    "sys.modules, file=sys.stderr)); from curvflow.cli import main; main()"
)
RUN = ("run", "tiny.yaml", "--json")


def guarded(
    code: str, *arguments: str, cwd: Path, refused: tuple[str, ...] = HEAVY
) -> subprocess.CompletedProcess[str]:
    program = GUARDED.format(heavy=refused, code=code)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT")}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["plan", QUICKSTART, "--store", "empty", "--json"],
        ["kinds"],
        ["schema"],
        ["run", "--help"],
        ["doctor", "--help"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_no_heavy_library_is_imported_to_answer(arguments, tmp_path):
    done = guarded(ASK, *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Return a folder in which the tiny study has run, with the run's output."""
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "tiny.yaml").write_text(TINY)
    done = guarded(NUMPY_TOLD, *RUN, cwd=folder, refused=UNUSED)
    assert done.returncode == 0, done.stderr
    return folder, done


def test_a_run_in_this_process_loads_no_engine_and_then_not_even_torch(tiny):
    folder, first = tiny
    assert json.loads(first.stdout)["executed"] == {"data": 1, "fit": 2, "table": 1}
    second = guarded(ASK, *RUN, cwd=folder, refused=(*ENGINES, "torch"))
    assert second.returncode == 0, second.stderr
    assert set(json.loads(second.stdout)["executed"].values()) == {0}


def test_a_run_that_only_makes_a_table_anew_loads_no_torch(tiny):
    folder, _ = tiny
    (folder / "table.yaml").write_text(
        TINY.replace("over: seed", "over: seed, quantities: final_train_loss")
    )
    run = ("run", "table.yaml", "--json")
    done = guarded(ASK, *run, cwd=folder, refused=(*UNUSED, "torch"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["executed"] == {"data": 0, "fit": 0, "table": 1}


def test_the_guard_refuses_each_heavy_library(tmp_path):
    done = guarded(IMPORT_ALL, *HEAVY, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{name} was imported" for name in HEAVY]


def test_a_plan_loads_declarations_of_what_it_names(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)
    listing = (
        "import atexit, sys; atexit.register(lambda: print(*sorted(sys.modules),"
        f" sep='\\n', file=sys.stderr)); {ASK}"
    )
    done = guarded(listing, "plan", "tiny.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    inside = "curvflow.schemas."
    loaded = {n.removeprefix(inside) for n in done.stderr.split() if inside in n}
    assert loaded >= {"kinds.aggregate.summary", "models.mlp", "rules.sgd"}
    unnamed = {"aggregate.rank", "data.digits", "figures.lines", "probes.trace"}
    assert loaded.isdisjoint(f"kinds.{name}" for name in unnamed)
    assert loaded.isdisjoint({"models.vit", "rules.ngd", "rules.wrappers"})


OWN = """
import numpy as np
from curvflow import Data, Outcome, Variable, stage


@stage("own.total", version=1, outputs=(Variable("total", "of inputs"),))
def total(data: Data) -> dict[str, object]:
    return {"total": np.sum(data["inputs"])}
"""


def test_a_plan_of_results_that_are_all_there_loads_no_numpy(tiny):
    folder, ran = tiny
    planned = guarded(NUMPY_TOLD, "plan", "tiny.yaml", cwd=folder, refused=ENGINES)
    assert planned.returncode == 0, planned.stderr
    assert [one.stderr.split()[-1] for one in (ran, planned)] == ["True", "False"]


def test_nor_does_a_plan_of_a_kind_of_ones_own(tiny):
    folder, _ = tiny
    stage = '  total: {use: "own_kinds:total", data: data}'
    (folder / "own.yaml").write_text(TINY + stage)
    (folder / "own_kinds.py").write_text(OWN)
    loads = {}
    for command in ("run", "plan"):
        done = guarded(NUMPY_TOLD, command, "own.yaml", cwd=folder, refused=ENGINES)
        assert done.returncode == 0, done.stderr
        loads[command] = done.stderr.split()[-1]
    assert loads == {"run": "True", "plan": "False"}
