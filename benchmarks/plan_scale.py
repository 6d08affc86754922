"""Time `curvflow plan` on studies whose every node is cached.

    python benchmarks/plan_scale.py [NODES ...]      default 10000 100000

Prints per size the seconds of a fresh process, the budget they are held to, and their
ratio to a floor measured in the same run: reading and parsing the same log as JSON,
which any planner that trusts nothing but the log must do.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from curvflow.flows.door import open_study
from curvflow.flows.graph import Graph, Node
from curvflow.flows.lookup import compare, input_digests
from curvflow.flows.plan import make_plan
from curvflow.schemas.keys import sha256
from curvflow.schemas.receipts import Receipt
from curvflow.stores.base import Store

BUDGET = {10_000: 1.0, 100_000: 10.0}  # seconds
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
  eigen: {{use: probe.eigenvalues, weights: fit, k: 3}}
  norms: {{use: probe.norms, weights: fit, at: all}}
  table: {{use: aggregate.summary, of: [fit, trace, eigen], over: seed}}
"""
NODES_PER_SEED = 2 * (1 + 1 + 1 + 3)  # fit, trace, eigen, norms at three checkpoints


def main(sizes: list[int]) -> None:
    """Measure each size and print one line."""
    print(f"{'nodes':>8} {'plan s':>8} {'budget s':>9} {'floor s':>8} {'x floor':>8}")
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            study = Path(folder) / "study.yaml"
            study.write_text(STUDY.format(seeds=size // NODES_PER_SEED))
            fill(study)
            seconds, said = plan(study)
            floor = parse_log(study.parent / ".curvflow")
        assert said["cached"] == said["total"], said
        budget = BUDGET.get(size, float("nan"))
        print(
            f"{said['total']:>8} {seconds:>8.2f} {budget:>9.1f} {floor:>8.2f} "
            f"{seconds / floor:>8.1f}"
        )


def fill(path: Path) -> None:
    """Commit a receipt for every node, as if all had been computed in tiles."""
    opened = open_study(path, create=True)
    graph = make_plan(opened.study, opened.store, opened.files).graph
    for nodes in graph.nodes.values():
        compare(nodes, opened.store.index())
        for start in range(0, len(nodes), TILE):
            commit(graph, opened.store, nodes[start : start + TILE])


def commit(graph: Graph, store: Store, nodes: list[Node]) -> None:
    """Commit one tile's receipts over one small payload."""
    stamp = np.frombuffer(str(nodes[0].key).encode(), "u1")
    payload = store.write_payload({"stamp": stamp[None]})
    receipts = [receipt(graph, n, payload, slot) for slot, n in enumerate(nodes)]
    for node, live in zip(nodes, store.commit(receipts), strict=True):
        node.receipt, node.state = live, "cached"


def receipt(graph: Graph, node: Node, payload: str, slot: int) -> Receipt:
    """Make up a node's receipt: real key and parts, digests of nothing."""
    kind = node.kind
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
    )
    return replace(blank, payload=payload, slot=slot, seconds=0.1, width=TILE)


def plan(study: Path) -> tuple[float, dict[str, int]]:
    """Plan in a fresh process; best of three."""
    program = "from curvflow.cli.app import main; main()"
    command = [sys.executable, "-c", program, "plan", str(study), "--json"]
    times = []
    for _ in range(3):
        started = time.perf_counter()
        done = subprocess.run(command, capture_output=True, check=True)
        times.append(time.perf_counter() - started)
    return min(times), json.loads(done.stdout)


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
    main([int(size) for size in sys.argv[1:]] or list(BUDGET))
