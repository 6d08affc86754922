"""Graphs of millions of nodes: seconds and peak memory of each stage of a study.

    python -m benchmarks.graph_scale [--only web large] [--threads N] [--small]
    python -m benchmarks.graph_scale --file PATH [--threads N]

Each stage is a `curvflow run` of its own, in a fresh process that finds the earlier
stages stored. The peak is that of its resident memory, as the system counts it, above
that of the same run with a graph of 3,000 nodes; beside it stands what a plan estimates
for the stage. `web` has the size of web-Google and is grown by preferential attachment,
as that file cannot be had everywhere; `large` has 10 million nodes and 40 million
edges, in twenty clusters. `--small` takes 3,000 nodes for both, to see that all works.
`--file` takes the stages of `web` of the graph of a file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from curvflow.schemas.kinds import find_kind
from curvflow.schemas.nodes import Graph, Member, NodeData, Ritz
from curvflow.tasks.registry import Machine, find

SMALL = 3_000
Stages = dict[str, dict[str, Any]]


def web(nodes: int) -> Stages:
    """Return a graph grown with five edges for each node, and its moments."""
    return {
        "graph": {
            "use": "data.random_graph",
            "model": "barabasi_albert",
            "n": nodes,
            "m": 5,
        },
        "structure": {"use": "probe.graph_structure", "graph": "graph"},
        "moments": {
            "use": "probe.moments",
            "graph": "graph",
            "num_moments": 100,
            "num_probes": 20,
            "support": [0.0, 2.0],
        },
    }


def large(nodes: int) -> Stages:
    """Return twenty clusters, what they have, their moments, and how many they are."""
    cluster = {"model": "barabasi_albert", "count": 20, "size": nodes // 20, "m": 4}
    return {
        "graph": {
            "use": "data.random_graph",
            "model": "planted_clusters",
            "clusters": [cluster],
            "links": 100,
        },
        "structure": {"use": "probe.graph_structure", "graph": "graph"},
        "moments": {
            "use": "probe.moments",
            "graph": "graph",
            "num_moments": 40,
            "num_probes": 5,
            "support": [0.0, 2.0],
        },
        "spectrum": {
            "use": "probe.spectrum",
            "graph": "graph",
            "num_runs": 15,
            "num_steps": 20,
            "reorthogonalize": "none",
        },
        "clusters": {
            "use": "probe.cluster_count",
            "graph": "graph",
            "ritz": "spectrum",
        },
    }


def of_file(path: Path) -> Stages:
    """Return the stages of `web` of the graph of a file."""
    return web(0) | {"graph": {"use": "data.graph", "path": str(path.absolute())}}


CASES = {"web": (web, 875_713), "large": (large, 10_000_000)}


@dataclass(frozen=True)
class Run:
    """One `curvflow run`.

    Attributes:
        seconds: by the clock.
        processor: seconds of the process, user's and system's.
        peak: largest resident memory, bytes.
    """

    seconds: float
    processor: float
    peak: int


def run(stages: Stages, folder: Path, threads: int) -> Run:
    """Compute the last stage of a study, and the others if they are not stored.

    Returns:
        What it took.

    Raises:
        RuntimeError: the run failed.
    """
    study = folder / "study.yaml"
    # JSON is YAML.
    study.write_text(json.dumps({"study": "scale", "stages": stages}))
    program = str(Path(sys.executable).with_name("curvflow"))
    command = [program, "run", str(study), "--workers", "1"]
    begun = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--threads", str(threads)],
        stdout=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": str(threads)},
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{list(stages)[-1]}: failed with {process.returncode}")
    return Run(
        time.perf_counter() - begun,
        used.ru_utime + used.ru_stime,
        1024 * used.ru_maxrss,
    )


def estimate(stages: Stages, name: str) -> int:
    """Return what a plan takes for the memory of a stage, in bytes."""
    settings = {k: v for k, v in stages[name].items() if k != "use"}
    inputs: dict[str, list[NodeData]] = {
        key: [_stand_in(stages, settings.pop(key))]
        for key in ("graph", "ritz")
        if key in settings
    }
    return find(stages[name]["use"]).member_bytes(_member(stages, name, inputs))


def _member(stages: Stages, name: str, inputs: dict[str, list[NodeData]]) -> Member:
    """Return the parameters of a stage with what it takes."""
    settings = {k: v for k, v in stages[name].items() if k not in ("use", *inputs)}
    params = find_kind(stages[name]["use"]).params.model_validate(settings)
    path = settings.get("path")
    files = {"path": {"bytes": np.memmap(path, np.uint8, "r")}} if path else {}
    return Member(params, inputs, files=files)


@cache
def _read(path: str) -> NodeData:
    """Return the graph of a file."""
    member = _member({"graph": {"use": "data.graph", "path": path}}, "graph", {})
    (outcome,) = find("data.graph").compute([member], Machine())
    return Graph("graph", "data.graph", {}, outcome.arrays, "")


def _stand_in(stages: Stages, name: str) -> NodeData:
    """Return a result of the shapes that a stage has; if drawn, without its arrays."""
    if "path" in stages[name]:
        return _read(stages[name]["path"])
    settings = {k: v for k, v in stages[name].items() if k not in ("use", "graph")}
    params: Any = find_kind(stages[name]["use"]).params.model_validate(settings)
    if name == "graph":
        nodes, entries = int(params.mean_nodes), int(2 * params.mean_edges)
        arrays: Mapping[str, Any] = {
            "indptr": np.broadcast_to(np.int64(0), (nodes + 1,)),
            "indices": np.broadcast_to(np.int32(0), (entries,)),
            "weights": np.zeros(0),
            "size": np.array(nodes),
        }
        return Graph("graph", "data.random_graph", {}, arrays, "")
    values = np.broadcast_to(np.float64(0), (params.num_runs, params.num_steps))
    return Ritz(name, stages[name]["use"], {}, {"ritz_values": values}, "")


def measure(case: str, stages: Stages, little: Stages, threads: int) -> None:
    """Print a row for each stage of a case, above what a little graph takes."""
    found: dict[str, tuple[Run, Run]] = {}
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        for number, name in enumerate(stages, start=1):
            before = run(dict(list(little.items())[:number]), Path(one), threads)
            after = run(dict(list(stages.items())[:number]), Path(other), threads)
            found[name] = before, after
    # Last, for the system counts the memory of this process into that of the next run.
    for name, (before, after) in found.items():
        above, planned = after.peak - before.peak, estimate(stages, name)
        print(
            f"| {case}: {name} | {after.seconds:.0f} s | {after.processor:.0f} s | "
            f"{after.peak / 2**30:.2f} GiB | {above / 2**30:.2f} GiB | "
            f"{planned / 2**30:.2f} GiB | {planned / above:.2f} |",
            flush=True,
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=CASES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--file", type=Path, help="a graph of one's own")
    parser.add_argument("--small", action="store_true", help="graphs that are small")
    options = parser.parse_args()
    print("| stage | clock | processor | peak | above start | estimate | ratio |")
    print("|---" * 7 + "|")
    if options.file:
        measure("file", of_file(options.file), web(SMALL), options.threads)
        return
    for case in options.only:
        make, nodes = CASES[case]
        stages = make(SMALL if options.small else nodes)
        measure(case, stages, make(SMALL), options.threads)


if __name__ == "__main__":
    main()
