"""Time what a small change to a large, finished study costs.

    python benchmarks/increment.py [NODES ...]      default 1000 10000 100000

Every study is computed for once: XOR, two rules, as many seeds as asked for; training,
trace, eigenvalue, norms at three checkpoints, a table and a figure. Each number is of
fresh processes, the least of three where nothing is computed, in seconds of the
processor, so that other work on the machine counts little. Multiples are of a plan
with nothing to do, measured in the same run; those of one seed more are what it takes
beyond a study of one seed in a store of its own. Beside the plan stands its floor, to
read and parse the log as JSON, and beside `show` the time to read all payloads' bytes.
At the end all payloads are taken away, and the study is planned once more.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

SIZES = (1_000, 10_000, 100_000)
NODES_PER_SEED = 2 * (1 + 1 + 1 + 3)  # fit, trace, eigen, norms at three checkpoints
STUDY = """
study: increment
axes:
  seed: {seeds}
  rule: {{small: {{rule: sgd, lr: 0.05}}, large: {{rule: sgd, lr: 0.5}}{label}}}
stages:
  data: {{use: data.xor}}
  fit: {{use: train, data: data, model: {{kind: mlp, hidden: [2], activation: tanh}},
         rule: "${{rule}}", seed: "${{seed}}", epochs: 20, checkpoints: {{every: 10}}}}
  trace: {{use: probe.trace, weights: fit, operator: hessian}}
  eigen: {{use: probe.eigenvalues, weights: fit}}
  norms: {{use: probe.norms, weights: fit, at: all}}
  table: {{use: aggregate.summary, of: [fit, trace, eigen], over: seed{table}}}
  figure: {{use: figure.lines, of: fit, y: train_loss, label: rule, over: seed,
           log_y: true}}
"""
LABEL = ", middle: {rule: sgd, lr: 0.2}"
TABLE = ", quantities: [trace, eigenvalues]"
PROGRAM = "from curvflow.cli import main; main()"


def main(sizes: Sequence[int]) -> None:
    """Measure each size, and print seconds and multiples of a plan."""
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            measure(size // NODES_PER_SEED, Path(folder))


def measure(seeds: int, folder: Path) -> None:
    """Compute a study, change it, and time each step."""
    alone, study = folder / "alone.yaml", folder / "study.yaml"
    computing = changed(alone, folder / "alone", seeds=1)
    store = folder / "store"
    first = changed(study, store, seeds=seeds)
    plan = timed("plan", study, store)
    line("nodes", seeds * NODES_PER_SEED, "computed at first", first)
    line("plan", plan, "x floor", plan / parse_log(store))
    line("plan, microseconds a node", 1e6 * plan / seeds / NODES_PER_SEED)
    noop = timed("run", study, store)
    line("run with nothing to do", noop, "x plan", noop / plan)
    report = timed("report", study, store)
    line("report", report, "x plan", report / plan)
    show = timed("show", study, store, "trace", "--json")
    line("show", show, "x plan", show / plan, "x bytes", show / read_bytes(store))
    seed = changed(study, store, seeds=seeds + 1) - computing
    line("one seed more, beyond its computing", seed, "x plan", seed / plan)
    table = changed(study, store, seeds=seeds + 1, table=TABLE)
    line("one parameter of the table changed", table, "x plan", table / plan)
    label = changed(study, store, seeds=seeds + 1, table=TABLE, label=LABEL)
    line("one label more", label, "x the first run", label / first)
    for payload in store.glob("payloads/*/*"):
        payload.unlink()
    lost = timed("plan", study, store)
    line("plan of a store without payloads", lost, "x plan", lost / plan)
    print()


def line(what: str, value: float, *more: str | float) -> None:
    """Print a measurement, and what stands beside it."""
    beside = ", ".join(
        f"{number:.2f} {words}"
        for words, number in zip(more[::2], more[1::2], strict=True)
    )
    print(f"{what:42} {value:10,.2f}   {beside}".rstrip(), flush=True)


def changed(
    study: Path, store: Path, *, seeds: int, table: str = "", label: str = ""
) -> float:
    """Write a study and run it once; return the seconds."""
    study.write_text(STUDY.format(seeds=seeds, table=table, label=label))
    return timed("run", study, store, repeats=1)


def timed(verb: str, study: Path, store: Path, *more: str, repeats: int = 3) -> float:
    """Return the least processor's seconds of a command in fresh processes."""
    command = [sys.executable, "-c", PROGRAM, verb, str(study), *more]
    command += ["--store", str(store)]
    seconds = []
    for _ in range(repeats):
        started = of_children()
        subprocess.run(command, capture_output=True, check=True)
        seconds.append(of_children() - started)
    return min(seconds)


def of_children() -> float:
    """Return the processor's seconds of all processes that were waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def parse_log(store: Path) -> float:
    """Return the least seconds of three to read and parse every entry of the log."""
    seconds = []
    for _ in range(3):
        started = time.process_time()
        for entry in sorted((store / "commits").glob("*.json")):
            json.loads(entry.read_bytes())
        seconds.append(time.process_time() - started)
    return min(seconds)


def read_bytes(store: Path) -> float:
    """Return the seconds that reading all payloads' bytes takes."""
    started = time.process_time()
    for payload in store.glob("payloads/*/*"):
        payload.read_bytes()
    return time.process_time() - started


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or SIZES)
