"""Time `curvflow plan`, and `run` with nothing to do, on studies that are all cached.

    python benchmarks/plan_scale.py [NODES ...]      default 10000 100000

Prints per size the seconds of fresh processes and the budgets they are held to, the
plan's ratio to a floor measured in the same run (reading and parsing the same log as
JSON, which any planner that trusts nothing but the log must do), the plan's peak memory
and the number of files in the store. Before, the seconds that reading the code of the
quickstart study takes in one process, first and again: least, median and most of ten.
All seconds are the processor's, so that other work on the machine counts little.

The store is made without computing every node: a study of one seed is run, and the
arrays of its nodes, each float raised by a step of its own, become those of the nodes
of the large study, in payloads of a tile each with digests of what is in them. The
tables are computed. So a run reads what it would read of a study that was computed, and
writes its tables.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from curvflow.flows.graph.graph import Node, compare, input_digests
from curvflow.flows.graph.open_study import OpenedStudy, open_study
from curvflow.flows.plan.code.fingerprints import Fingerprints
from curvflow.flows.plan.plan import Plan, make_plan
from curvflow.flows.run.run import run_study
from curvflow.schemas.nodes import Array, Outcome
from curvflow.schemas.options import RunOptions
from curvflow.schemas.records.receipts import Receipt, part_digests, result_digest
from curvflow.stores.base import Store
from curvflow.stores.memory import MemoryStore

BUDGET = {10_000: 1.0, 100_000: 10.0}  # seconds of a plan
RUN_BUDGET = {10_000: 2.0}  # seconds of a run with nothing to do
TILE = 64
# By how much the floats of a node differ from those of the node before it; single
# precision needs larger steps to differ at all.
STEPS = {"float32": 1e-5, "float64": 1e-9}
TABLES = {"table"}
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
  table: {{use: aggregate.summary, of: [fit, trace, ggn], over: seed}}
"""
# Linux: the peak of this program alone, where ru_maxrss counts what started it too.
PROGRAM = """
import sys
from pathlib import Path
from curvflow.cli import main
try:
    main()
finally:
    (peak,) = [x for x in Path("/proc/self/status").open() if x.startswith("VmHWM")]
    print(peak.split()[1], file=sys.stderr)
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
            study.write_text(STUDY.format(seeds=size // NODES_PER_SEED))
            fill(study)
            seconds, said, megabytes = fresh("plan", study)
            store = study.parent / ".curvflow"
            floor = parse_log(store)
            files = sum(path.is_file() for path in store.rglob("*"))
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
        start = time.process_time()
        Fingerprints(study.parent).read(nodes)
        seconds.append(time.process_time() - start)
    first, *again = seconds
    low, middle, high = np.quantile(again, [0.0, 0.5, 1.0])
    print(
        f"code of {len(nodes)} nodes: first {first:.3f} s, again {middle:.4f} s "
        f"({low:.4f} to {high:.4f}), {first / middle:.0f} times as fast"
    )


def fill(path: Path) -> None:
    """Commit a result for every node, as if all had been computed in tiles."""
    opened = open_study(path, create=True)
    examples = computed(path)
    plan = make_plan(opened.study, opened.store, opened.files)
    for stage, nodes in plan.graph.nodes.items():
        if stage in TABLES:
            continue
        compare(nodes, opened.store.index())
        for start in range(0, len(nodes), TILE):
            tile = nodes[start : start + TILE]
            commit(plan, opened.store, tile, examples[stage], start)
    opened.store.record_codes(
        {
            plan.codes.of(node).fingerprint: plan.codes.record(node)
            for node in plan.graph
        }
    )
    executed = run(opened)
    assert {stage for stage, count in executed.items() if count} == TABLES, executed


def run(opened: OpenedStudy) -> Mapping[str, int]:
    """Run a study; how many nodes of each stage were computed."""
    options = RunOptions(workers=1)
    report = run_study(opened.study, opened.store, opened.files, options=options)
    return report.record.counts["executed"]


def computed(path: Path) -> dict[str, dict[str, Array]]:
    """Compute the study of one seed; the arrays of a node of each stage."""
    small = path.with_name("small.yaml")
    small.write_text(STUDY.format(seeds=1))
    opened = open_study(small, store="memory:")
    run(opened)
    nodes = make_plan(opened.study, opened.store, opened.files).graph.nodes
    small.unlink()
    return {stage: arrays(opened.store, some[0]) for stage, some in nodes.items()}


def arrays(store: Store, node: Node) -> dict[str, Array]:
    """Return all arrays of a node."""
    assert node.receipt is not None
    names = {part.partition("@")[0] for part in node.receipt.parts}
    return store.read(node.receipt, sorted(names))


def commit(
    plan: Plan, store: Store, nodes: list[Node], example: dict[str, Array], start: int
) -> None:
    """Commit one tile: its payload, and receipts of what is in it."""
    members = [moved(example, start + slot) for slot in range(len(nodes))]
    stacked = {name: np.stack([m[name] for m in members]) for name in example}
    payload = store.write_payload(stacked)
    receipts = [
        receipt(plan, node, member, payload=payload, slot=slot)
        for slot, (node, member) in enumerate(zip(nodes, members, strict=True))
    ]
    for node, live in zip(nodes, store.commit(receipts), strict=True):
        node.receipt, node.state = live, "cached"


def moved(example: dict[str, Array], number: int) -> dict[str, Array]:
    """Return arrays with every float raised, so that no two nodes are alike."""
    return {
        name: array + array.dtype.type(number * STEPS.get(array.dtype.name, 0.0))
        if array.dtype.kind == "f"
        else array
        for name, array in example.items()
    }


def receipt(
    plan: Plan, node: Node, member: dict[str, Array], *, payload: str, slot: int
) -> Receipt:
    """Make up a node's receipt: real key, code, parts and digests."""
    assert node.key is not None
    parts = part_digests(node.kind.outputs, Outcome(member))
    return Receipt(
        key=node.key,
        stage=node.stage,
        coords=node.coords,
        kind=node.kind.name,
        version=node.kind.version,
        params=node.form,
        inputs=input_digests(node) or {},
        digest=result_digest(parts, "ok", ""),
        parts=parts,
        code=plan.codes.of(node).fingerprint,
        payload=payload,
        slot=slot,
        seconds=0.1,
        width=TILE,
    )


def fresh(verb: str, study: Path) -> tuple[float, dict[str, Any], float]:
    """Plan or run in a fresh process; seconds, best of three, answer and megabytes."""
    command = [sys.executable, "-c", PROGRAM, verb, str(study), "--json"]
    times = []
    for _ in range(3):
        started = of_children()
        done = subprocess.run(command, capture_output=True, check=True)
        times.append(of_children() - started)
    memory = int(done.stderr.split()[-1]) / 1024  # of kilobytes
    return min(times), json.loads(done.stdout), memory


def of_children() -> float:
    """Return the processor's seconds of all processes that were waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def parse_log(store: Path) -> float:
    """Read and parse every entry of the log; best of three."""
    times = []
    for _ in range(3):
        started = time.process_time()
        for entry in sorted((store / "commits").glob("*.json")):
            json.loads(entry.read_bytes())
        times.append(time.process_time() - started)
    return min(times)


if __name__ == "__main__":
    print_code_seconds()  # before the rest has read any
    main([int(size) for size in sys.argv[1:]] or list(BUDGET))
