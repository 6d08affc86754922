"""What it costs to record the files that a user's code reads.

    python -m benchmarks.reads [--repeats N] [STUDY ...]

Runs each study from an empty store in a process of its own, in turn with and without
the audit hook, and compares the least time of the processor. On a busy machine two runs
differ by more than the hook costs, so the time spent in it is measured as well, in runs
of their own. Without a study those are the quickstart, whose kinds are all built-in,
and one of 200 nodes of a user's kind that reads a file each and computes for some
milliseconds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

QUICKSTART = Path(__file__).parents[1] / "studies" / "quickstart.yaml"
NODES = 200
HOWS = ("with", "without", "timed")
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
    parser.add_argument("--child", choices=HOWS)
    asked = parser.parse_args()
    if asked.child:
        run(asked.studies[0], asked.child)
        return
    with tempfile.TemporaryDirectory() as folder:
        for study in asked.studies or [QUICKSTART, written(Path(folder))]:
            report(study, asked.repeats)


def report(study: Path, repeats: int) -> None:
    """Compare runs with and without the hook, in turn."""
    totals: dict[str, list[float]] = {how: [] for how in HOWS}
    shares = []
    for number in range(repeats):
        for how in HOWS if number % 2 else reversed(HOWS):
            total, spent = seconds(study, how)
            totals[how].append(total)
            if how == "timed":
                shares.append(spent / (total - spent))
    seen, unseen = min(totals["with"]), min(totals["without"])
    print(
        f"{study.stem}: {unseen:.2f} s, with the hook {seen / unseen - 1:+.1%}; "
        f"spent in it {min(shares):.2%} to {max(shares):.2%}"
    )


def written(folder: Path) -> Path:
    """Write the study of a user's kind."""
    (folder / "bench_reads.py").write_text(KINDS)
    for seed in range(NODES):
        (folder / f"x{seed}.txt").write_text(str(seed))
    study = folder / "reads.yaml"
    study.write_text(STUDY)
    return study


def seconds(study: Path, how: str) -> tuple[float, float]:
    """Run a study in a process; return its processor time, and that of looking."""
    command = [sys.executable, "-m", "benchmarks.reads", "--child", how, str(study)]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(
        command, check=True, env=environment, capture_output=True, text=True
    )
    total, spent = map(float, done.stdout.splitlines()[-1].split())
    return total, spent


def run(study: Path, how: str) -> None:
    """Run a study from an empty store in this process; print the seconds."""
    import curvflow
    from curvflow.flows.reads import hook, windows
    from curvflow.flows.run.work import Publisher

    spent: Counter[str] = Counter()
    if how == "timed":
        for holder, names in (
            (hook, ("_quietly",)),
            (windows, ("_stack", "generators")),
            (windows.Window, ("remember_imports", "pass_on", "observed")),
            (Publisher, ("_reads",)),
        ):
            for name in names:
                setattr(holder, name, timed(getattr(holder, name), spent))
    elif how == "without":
        vars(windows)["looking"] = unseen
    with tempfile.TemporaryDirectory() as store:
        curvflow.run(study, store=store, workers=1)
    print(time.process_time(), spent.total() / 1e9)


def timed(function: Callable[..., Any], spent: Counter[str]) -> Callable[..., Any]:
    """Have a function add the nanoseconds that it takes."""

    def called(*arguments: Any) -> Any:
        begun = time.thread_time_ns()
        result = function(*arguments)
        if isinstance(result, Iterator):
            result = list(result)
        spent[function.__name__] += time.thread_time_ns() - begun
        return result

    return called


@contextmanager
def unseen(eye: object) -> Iterator[None]:
    """Look at nothing."""
    yield


if __name__ == "__main__":
    main()
