"""Time what the engine costs per node, beside writing the same arrays and no more.

    python benchmarks/publish.py [NODES]      default 2048

A study of one kind that computes nothing runs in tiles of 64, each node with 1,000
numbers: keys, claims, payloads, receipts, journal, all durable. The floor writes the
same arrays of each tile with `numpy.savez` and flushes the file, and that is all.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from curvflow.flows.graph.source_files import SourceFiles
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.run.run import run_study
from curvflow.schemas import kinds
from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.nodes import Member, Numbers, Outcome
from curvflow.schemas.options import RunOptions
from curvflow.schemas.params import Params
from curvflow.schemas.study.study import load_study
from curvflow.stores.local import LocalStore
from curvflow.tasks.registry import Machine, computes

TILE = 64
SIZE = 1000
BUDGET = 1.0  # milliseconds per node


class Nothing(Params):
    """Parameters of a kind that computes nothing."""

    seed: int = 0


def numbers(seed: int) -> np.ndarray:
    """Return a node's arrays: what zstd cannot make smaller."""
    return np.random.default_rng(seed).normal(size=SIZE)


def declare() -> None:
    """Make the kind known."""
    kinds.add(
        Kind(
            name="bench.nothing",
            version=1,
            summary="Random numbers.",
            params=Nothing,
            returns=Numbers,
            outputs=(Variable("numbers", "noise", ("entry",), bulk=True),),
            varying=("seed",),
        )
    )

    @computes("bench.nothing")
    def nothing(members: Sequence[Member], _: Machine) -> list[Outcome]:
        return [
            Outcome({"numbers": numbers(m.params.model_dump()["seed"])})
            for m in members
        ]


def engine(folder: Path, nodes: int) -> tuple[float, float]:
    """Run a study of so many nodes; seconds of planning and of the whole run."""
    text = (
        f"study: publish\naxes: {{seed: {nodes}}}\n"
        'stages: {noise: {use: bench.nothing, seed: "${seed}"}}\n'
    )
    study = load_study(text, file="publish.yaml")
    store, files = LocalStore(folder / "store"), SourceFiles(folder)
    options = RunOptions(
        tile_bytes=TILE << 20, workers=1
    )  # a megabyte a node: 64 a tile
    started = time.perf_counter()
    make_plan(study, store, files)
    planned = time.perf_counter()
    report = run_study(study, store, files, options=options)
    done = time.perf_counter()
    widths = {one.width for one in store.index().receipts.values()}
    assert report.record.counts["executed"]["noise"] == nodes
    assert widths == {TILE}, widths
    return planned - started, done - planned


def floor(folder: Path, nodes: int) -> float:
    """Compute and write the same arrays, one flushed file per tile; seconds."""
    started = time.perf_counter()
    for start in range(0, nodes, TILE):
        arrays = np.stack([numbers(seed) for seed in range(start, start + TILE)])
        with (folder / f"{start}.npz").open("xb") as file:
            np.savez(file, numbers=arrays)
            file.flush()
            os.fsync(file.fileno())
    return time.perf_counter() - started


def main(nodes: int) -> None:
    """Measure three times and print the best."""
    declare()
    with tempfile.TemporaryDirectory() as warm:
        engine(Path(warm), TILE)
    runs, floors, plans = [], [], []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            planned, ran = engine(Path(one), nodes)
            plans.append(planned)
            runs.append(ran)
            floors.append(floor(Path(two), nodes))
    whole, least = 1000 * min(runs) / nodes, 1000 * min(floors) / nodes
    print(f"nodes                                  {nodes}, {TILE} to a tile")
    print(f"engine, of it planning                 {whole:.3f} ms per node, ", end="")
    print(f"{1000 * min(plans) / nodes:.3f}")
    print(f"arrays written and flushed, no more    {least:.3f} ms per node")
    print(f"overhead of publishing                 {whole - least:.3f} ms per node, ")
    print(f"to reach                               {BUDGET:.3f} ms per node")
    print(f"ratio                                  {whole / least:.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 2048)
