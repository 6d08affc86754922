"""What it costs to record the files that a user's code reads.

    python -m benchmarks.reads [--repeats N] [STUDY ...]

Runs each study from an empty store in a process of its own, in turn with and without
the audit hook, and compares the least time of the processor. Without a study those are
the quickstart, whose kinds are all built-in, and one of 200 nodes of a user's kind that
reads a file each and computes for some milliseconds.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

QUICKSTART = Path(__file__).parents[1] / "studies" / "quickstart.yaml"
NODES = 200
KINDS = '''
import numpy as np
from curvflow import Params, Variable, stage

HERE = __file__.rpartition("/")[0]


class Chosen(Params):
    seed: int


@stage("bench.read", version=1, outputs=(Variable("value", "a value"),))
def read(params: Chosen) -> dict[str, object]:
    """Return the largest eigenvalue of a matrix."""
    with open(f"{HERE}/x{params.seed}.txt") as file:
        draw = np.random.default_rng(int(file.read()))
    matrix = draw.normal(size=(120, 120))
    return {"value": np.linalg.eigvalsh(matrix + matrix.T)[-1]}
'''
STUDY = f"""\
study: reads
axes: {{seed: {NODES}}}
stages:
  read: {{use: "bench_reads:read", seed: "${{seed}}"}}
"""


def main() -> None:
    """Print a line for each study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", nargs="*", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--child", choices=("with", "without"))
    asked = parser.parse_args()
    if asked.child:
        run(asked.studies[0], is_seen=asked.child == "with")
        return
    with tempfile.TemporaryDirectory() as folder:
        for study in asked.studies or [QUICKSTART, written(Path(folder))]:
            seen, unseen = compared(study, asked.repeats)
            share = (seen - unseen) / unseen
            print(f"{study.stem}: {unseen:.2f} s, with the hook {share:+.1%}")


def written(folder: Path) -> Path:
    """Write the study of a user's kind."""
    (folder / "bench_reads.py").write_text(KINDS)
    for seed in range(NODES):
        (folder / f"x{seed}.txt").write_text(str(seed))
    study = folder / "reads.yaml"
    study.write_text(STUDY)
    return study


def compared(study: Path, repeats: int) -> tuple[float, float]:
    """Return the least seconds of the processor with and without the hook."""
    least = {"with": float("inf"), "without": float("inf")}
    for number in range(2 * repeats):
        how = ("with", "without")[(number + number // 2) % 2]  # ABBA
        least[how] = min(least[how], seconds(study, how))
    return least["with"], least["without"]


def seconds(study: Path, how: str) -> float:
    """Run a study in a process; return its seconds of the processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "benchmarks.reads", "--child", how, str(study)]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run(command, check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run(study: Path, *, is_seen: bool) -> None:
    """Run a study from an empty store in this process."""
    import curvflow
    from curvflow.flows.reads import windows

    if not is_seen:
        vars(windows)["looking"] = unseen
    with tempfile.TemporaryDirectory() as store:
        curvflow.run(study, store=store, workers=1)


@contextmanager
def unseen(eye: object) -> Iterator[None]:
    """Look at nothing."""
    yield


if __name__ == "__main__":
    main()
