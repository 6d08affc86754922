"""Measure what limits a run that grows: workers, tiles, nodes, requests.

    python -m benchmarks.scale [--quick] [PART ...]

Parts are two, sixteen, coordinator, bucket and prefect, by default all. Prints
percentages and costs beside the budgets they are held to; `--quick` only shows that it
works. Run it in the project's folder, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.scaling import bucket, coordinator, traffic, workers
from benchmarks.scaling.clock import load

Part = Callable[[Path], Iterator[str]]

PARTS: Mapping[str, Part] = {
    "two": lambda folder: workers.two(folder, tiles=24, seconds=1.0, turns=2),
    "sixteen": lambda folder: workers.sixteen(folder, waves=20, naps=[0.2, 1.0]),
    "coordinator": lambda folder: coordinator.table(folder, [1_000, 10_000]),
    "bucket": lambda _: bucket.table(20, 120),
    "prefect": lambda folder: traffic.table(folder, [100, 1_000, 10_000]),
}
QUICK: Mapping[str, Part] = {
    "two": lambda folder: workers.two(folder, tiles=4, seconds=0.1, turns=1),
    "sixteen": lambda folder: workers.sixteen(folder, waves=1, naps=[0.1]),
    "coordinator": lambda folder: coordinator.table(folder, [10, 200]),
    "bucket": lambda _: bucket.table(2, 4),
    "prefect": lambda folder: traffic.table(folder, [10, 20]),
}


def main(parts: list[str], *, quick: bool) -> None:
    """Measure some parts and print each as it is done."""
    for name in parts:
        with tempfile.TemporaryDirectory() as folder:
            for line in (QUICK if quick else PARTS)[name](Path(folder)):
                print(line, flush=True)
        print(load(), end="\n\n", flush=True)


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, []])
    asked.add_argument("--quick", action="store_true")
    given = asked.parse_args()
    main(given.parts or list(PARTS), quick=given.quick)
