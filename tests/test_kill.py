"""kill -9 at random instants loses at most the tiles in flight, and nothing else."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from curvflow.flows.api import open as open_results
from curvflow.flows.graph.open_study import open_study

pytestmark = pytest.mark.processes

KILLS = 30
STUDY = """
study: killed
axes:
  seed: 4
  rule: {sgd: {rule: sgd, lr: 0.1}, adam: {rule: adam, lr: 0.01}}
  width: {narrow: [3], wide: [5]}
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: mlp, hidden: "${width}"}, rule: "${rule}",
        seed: "${seed}", epochs: 20, checkpoints: {every: 5}}
  trace: {use: probe.hessian_trace, weights: fit, num_probes: 8}
  eigen: {use: probe.eigenvalues, weights: fit, k: 2}
  norms: {use: probe.norms, weights: fit, at: all}
  table: {use: aggregate.summary, of: [fit, trace, eigen], over: seed}
"""
# A driver imports what runs need, reads the code of the kinds once and forks the runs
# that it kills, so that they are killed at work. Small tiles, so that there is much to
# lose.
DRIVER = """
import gc, os, random, signal, sys, time
import torch, torch._dynamo
import curvflow.flows.graph.tiles as tiles
import curvflow.stores.zarr_payloads
import curvflow.tasks.aggregate.summary
import curvflow.tasks.data.xor
import curvflow.tasks.machine
import curvflow.tasks.probes.extremes.eigenvalues
import curvflow.tasks.probes.hessian_trace
import curvflow.tasks.probes.norms
import curvflow.tasks.train
from curvflow.flows.api import run
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.plan.plan import make_plan
from curvflow.schemas.kinds import all_kinds

calm, killed, kills = sys.argv[1], sys.argv[2], int(sys.argv[3])
tiles.MAX_WIDTH = 2
all_kinds()
opened = open_study(calm, store="memory:")
plan = make_plan(opened.study, opened.store, opened.files)
plan.codes.read(plan.graph)
gc.freeze()


def attempt(study, seconds=None):
    child = os.fork()
    if child == 0:
        run(study, workers=1)
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


began = time.monotonic()
assert attempt(calm) == 0
whole = time.monotonic() - began
lots = random.Random(0)
codes = [attempt(killed, lots.uniform(0, whole / 8)) for _ in range(kills)]
assert attempt(killed) == 0
print(codes.count(-signal.SIGKILL))
"""


def digests(study: Path) -> dict[str, str]:
    index = open_study(study).store.index()
    return {key: receipt.digest for key, receipt in index.receipts.items()}


@pytest.mark.slow
def test_thirty_kills_and_a_clean_run_equal_an_undisturbed_run(tmp_path):
    calm, killed = tmp_path / "calm" / "study.yaml", tmp_path / "killed" / "study.yaml"
    for path in (calm, killed):
        path.parent.mkdir()
        path.write_text(STUDY)
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(calm), str(killed), str(KILLS)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert int(done.stdout) > KILLS // 2
    assert digests(killed) == digests(calm)
    assert set(open_results(killed).view("table").counts()) == {"ok"}
    assert committed_once(killed)


def committed_once(study: Path) -> bool:
    """Every node was committed once, and no committed tile was begun again."""
    store = open_study(study).store
    index = store.index()
    commits = Counter(receipt.key for receipt in index.rows.values())
    done: set[str] = set()
    for run in index.runs:
        for note in store.journal(run):
            if note["event"] == "begins":
                assert not done.intersection(note["keys"]), "computed twice"
            done.update(note["keys"] if note["event"] == "committed" else ())
    return set(commits.values()) == {1}
