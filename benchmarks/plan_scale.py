"""Time `curvflow plan`, and `run` with nothing to do, on studies that are all cached.

    python benchmarks/plan_scale.py [NODES ...]      default 10000 100000

Prints per size the seconds of fresh processes and the budgets they are held to, the
plan's ratio to a floor measured in the same run (reading and parsing the same log as
JSON, which any planner that trusts nothing but the log must do), the plan's peak memory
and the number of files in the store. Before, the seconds that reading the code of the
quickstart study takes in one process, first and again: least, median and most of ten.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from curvflow.flows.graph.graph import Node, compare, input_digests
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.plan.code.fingerprints import Fingerprints
from curvflow.flows.plan.plan import Plan, make_plan
from curvflow.schemas.keys import sha256
from curvflow.schemas.records.receipts import Receipt
from curvflow.stores.base import Store
from curvflow.stores.memory import MemoryStore

BUDGET = {10_000: 1.0, 100_000: 10.0}  # seconds of a plan
RUN_BUDGET = {10_000: 2.0}  # seconds of a run with nothing to do
# No kind with a flag of convergence: a run reads flags, and no payloads are made here.
TILE = 64
STUDY = """
study: plan-scale
axes:
  seed: {seeds}
  rule: {{small: {{rule: sgd, lr: 0.01}}, large: {{rule: sgd, lr: 0.1}}}}
stages:
  data: {{use: data.digits}}
  fit: {{use: train, data: data, model: {{kind: mlp, hidden: [16]}}, rule: "${{rule}}",
         seed: "${{seed}}", epochs: 10, checkpoints: {{every: 5}}}}
  trace: {{use: probe.hessian_trace, weights: fit}}
  ggn: {{use: probe.trace, weights: fit, operator: ggn}}
  norms: {{use: probe.norms, weights: fit, at: all}}
"""
TABLE = """  table: {use: aggregate.summary, of: [fit, trace, ggn], over: seed}
"""
PROGRAM = """
import resource, sys
from curvflow.cli.app import main
try:
    main()
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""
NODES_PER_SEED = 2 * (1 + 1 + 1 + 3)  # fit, trace, ggn, norms at three checkpoints


def main(sizes: list[int]) -> None:
    """Measure each size and print one line."""
    print(
        f"{'nodes':>8} {'plan s':>8} {'budget s':>9} {'floor s':>8} {'x floor':>8} "
        f"{'MB':>6} {'run s':>8} {'budget s':>9} {'files':>6}"
    )
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            study = Path(folder) / "study.yaml"
            bare = STUDY.format(seeds=size // NODES_PER_SEED)
            study.write_text(bare + TABLE)
            fill(study)
            seconds, said, megabytes = fresh("plan", study)
            store = study.parent / ".curvflow"
            floor = parse_log(store)
            files = sum(path.is_file() for path in store.rglob("*"))
            study.write_text(bare)  # the made-up tables cannot be written out
            run_seconds, ran, _ = fresh("run", study)
        assert said["cached"] == said["total"], said
        assert not any(ran["executed"].values()), ran
        budget, run_budget = (b.get(size, float("nan")) for b in (BUDGET, RUN_BUDGET))
        print(
            f"{said['total']:>8} {seconds:>8.2f} {budget:>9.1f} {floor:>8.2f} "
            f"{seconds / floor:>8.1f} {megabytes:>6.0f} {run_seconds:>8.2f} "
            f"{run_budget:>9.1f} {files:>6}"
        )


def print_code_seconds() -> None:
    """Read the code of a study in this process, first and ten times again."""
    study = Path(__file__).parents[1] / "studies" / "quickstart.yaml"
    opened = open_study(study, store="memory:")
    nodes = list(make_plan(opened.study, MemoryStore(), opened.files).graph)
    seconds = []
    for _ in range(11):
        start = time.perf_counter()
        Fingerprints(study.parent).read(nodes)
        seconds.append(time.perf_counter() - start)
    first, *again = seconds
    low, middle, high = np.quantile(again, [0.0, 0.5, 1.0])
    print(
        f"code of {len(nodes)} nodes: first {first:.3f} s, again {middle:.4f} s "
        f"({low:.4f} to {high:.4f}), {first / middle:.0f} times as fast"
    )


def fill(path: Path) -> None:
    """Commit a receipt for every node, as if all had been computed in tiles."""
    opened = open_study(path, create=True)
    plan = make_plan(opened.study, opened.store, opened.files)
    for nodes in plan.graph.nodes.values():
        compare(nodes, opened.store.index())
        for start in range(0, len(nodes), TILE):
            commit(plan, opened.store, nodes[start : start + TILE])
    opened.store.record_codes(
        {
            plan.codes.of(node).fingerprint: plan.codes.record(node)
            for node in plan.graph
        }
    )


def commit(plan: Plan, store: Store, nodes: list[Node]) -> None:
    """Commit one tile's receipts over one small payload."""
    stamp = np.frombuffer(str(nodes[0].key).encode(), "u1")
    payload = store.write_payload({"stamp": stamp[None]})
    receipts = [receipt(plan, n, payload, slot) for slot, n in enumerate(nodes)]
    for node, live in zip(nodes, store.commit(receipts), strict=True):
        node.receipt, node.state = live, "cached"


def receipt(plan: Plan, node: Node, payload: str, slot: int) -> Receipt:
    """Make up a node's receipt: real key, code and parts, digests of nothing."""
    kind, code = node.kind, plan.codes.of(node)
    assert node.key is not None
    parts = {v.name: sha256([node.key, v.name]) for v in kind.outputs if not v.sliced}
    epochs = kind.checkpoints(node.params) if kind.checkpoints else ()
    for variable in kind.outputs:
        if variable.sliced:
            names = [f"{variable.name}@{epoch}" for epoch in epochs]
            parts |= {name: sha256([node.key, name]) for name in names}
    blank = Receipt(
        key=node.key,
        stage=node.stage,
        coords=node.coords,
        kind=kind.name,
        version=kind.version,
        params=node.form,
        inputs=input_digests(node) or {},
        digest=sha256(parts),
        parts=parts,
        code=code.fingerprint,
    )
    return replace(blank, payload=payload, slot=slot, seconds=0.1, width=TILE)


def fresh(verb: str, study: Path) -> tuple[float, dict[str, Any], float]:
    """Plan or run in a fresh process; seconds, best of three, answer and megabytes."""
    command = [sys.executable, "-c", PROGRAM, verb, str(study), "--json"]
    times = []
    for _ in range(3):
        started = time.perf_counter()
        done = subprocess.run(command, capture_output=True, check=True)
        times.append(time.perf_counter() - started)
    memory = int(done.stderr.split()[-1]) / 1024  # Linux counts in kilobytes
    return min(times), json.loads(done.stdout), memory


def parse_log(store: Path) -> float:
    """Read and parse every entry of the log; best of three."""
    times = []
    for _ in range(3):
        started = time.perf_counter()
        for entry in sorted((store / "commits").glob("*.json")):
            json.loads(entry.read_bytes())
        times.append(time.perf_counter() - started)
    return min(times)


if __name__ == "__main__":
    print_code_seconds()  # before the rest has read any
    main([int(size) for size in sys.argv[1:]] or list(BUDGET))
