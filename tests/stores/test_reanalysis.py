"""Only what is asked of the results has changed: no training, no probe, no GPU."""

import subprocess
import sys

import pytest

import curvflow
from curvflow.errors import RequestError
from curvflow.stores.open import open_store

STUDY = """\
study: again
axes:
  seed: 3
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: mlp, hidden: [3]},
        rule: {rule: sgd, lr: 0.1}, seed: "${seed}", epochs: 4}
  norms: {use: probe.norms, weights: fit}
  table: {use: aggregate.summary, of: [fit, norms], over: seed}
  bars: {use: figure.bars, of: norms, y: norm_l2, over: seed}
expect:
  - {stage: table, quantity: norm_l2, value: 1.0, within: 100.0, source: a guess}
"""
EDITS = {
    "a statistic": (
        "over: seed}\n  bars",
        "over: seed, confidence: 0.5}\n  bars",
        "table",
    ),
    "a figure": ("norms, y: norm_l2", "norms, y: max_abs", "bars"),
    "a new table": (
        "  bars",
        "  extra: {use: aggregate.summary, of: fit, over: seed}\n  bars",
        "extra",
    ),
}
# Refuses what computes, whether or not it is installed.
WITHOUT_TORCH = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "distributed", "prefect"):
            sys.exit(f"{name} was imported")

sys.meta_path.insert(0, Refuse())
from curvflow.cli.app import main
sys.exit(main())
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Run the study once; each test has a copy of what it is to change."""
    folder = tmp_path_factory.mktemp("again")
    (folder / "study.yaml").write_text(STUDY)
    curvflow.run(folder / "study.yaml")
    return folder


@pytest.fixture
def study(finished, tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    return path


def edited(study, before, after):
    assert STUDY.count(before) == 1
    study.write_text(STUDY.replace(before, after))


def executed(results):
    return {stage: n for stage, n in results.run.counts["executed"].items() if n}


@pytest.mark.parametrize("edit", EDITS)
def test_a_changed_analysis_runs_alone(finished, study, edit):
    before, after, stage = EDITS[edit]
    edited(study, before, after)
    results = curvflow.run(study, store=finished / ".curvflow", reanalyse=True)
    assert executed(results) == {stage: 1}


def test_a_changed_expectation_runs_nothing(finished, study):
    edited(study, "value: 1.0", "value: 2.0")
    results = curvflow.run(study, store=finished / ".curvflow", reanalyse=True)
    assert executed(results) == {}


def test_what_would_compute_is_refused_before_a_run_begins(finished, study):
    edited(study, "epochs: 4", "epochs: 5")
    store = finished / ".curvflow"
    runs = len(open_store(store, create=False).index().runs)
    with pytest.raises(RequestError) as refused:
        curvflow.run(study, store=store, reanalyse=True)
    assert str(refused.value) == (
        "--reanalyse: expected all results but tables and figures to be there, got "
        "nodes to compute: 3 of fit, 3 of norms. Run without --reanalyse, or undo the "
        "change: `curvflow why` names it."
    )
    assert len(open_store(store, create=False).index().runs) == runs


@pytest.mark.processes
def test_a_bucket_and_neither_torch_nor_a_gpu_suffice(study, bucket):
    url = f"s3://{bucket}/studies"
    curvflow.run(study, store=url)
    edited(study, "norms, y: norm_l2", "norms, y: max_abs")
    command = ("run", study, "--store", url, "--device", "cuda", "--reanalyse")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *map(str, command)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "1 node" in done.stdout
    assert (study.parent / "results" / "again" / "bars.png").stat().st_size > 0
