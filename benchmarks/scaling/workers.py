"""How much of their time several workers spend on tiles.

Two workers compute arithmetic, beside one and beside plain processes that do the same;
sixteen sleep, for this machine has not the cores to do more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped] # comes with Dask, without types

from benchmarks.scaling.arithmetic import burnt
from benchmarks.scaling.clock import Lasting
from curvflow.flows.api import run
from curvflow.flows.run.runners.local import local_client
from curvflow.schemas.options import RunOptions

HERE = Path(__file__).parent
BUDGET = 85.0  # percent at two workers
SLEEPERS = 16  # more than there are cores for, so they sleep


@dataclass
class Times:
    """Seconds for one and for two, the best of some turns."""

    one: float = float("inf")
    two: float = float("inf")

    def better(self, one: float, two: float) -> None:
        """Take a turn into account."""
        self.one, self.two = min(self.one, one), min(self.two, two)

    @property
    def percent(self) -> float:
        """Time that one spends over the time that two spend together."""
        return 100 * self.one / (2 * self.two)


@dataclass
class Measured:
    """Arithmetic by one and by two: plain processes, warm workers, whole runs."""

    plain: Times = field(default_factory=Times)
    warm: Times = field(default_factory=Times)
    whole: Times = field(default_factory=Times)


def two(folder: Path, tiles: int, seconds: float, turns: int) -> Iterator[str]:
    """Measure arithmetic, taking turns so that other load hits all alike.

    Args:
        folder: for the stores.
        tiles: number of tiles.
        seconds: of one tile, about.
        turns: of each.

    Yields:
        Lines of a table.
    """
    rounds, found = calibrated(seconds), Measured()
    for turn in range(turns):
        place = folder / f"turn-{turn}"
        found.plain.better(*(plain(n, tiles, rounds) for n in (1, 2)))
        found.warm.better(*(warm(place / f"w{n}", n, tiles, rounds) for n in (1, 2)))
        found.whole.better(*(whole(place / f"c{n}", n, tiles, rounds) for n in (1, 2)))
    yield f"{tiles} tiles of {seconds:g} s of arithmetic   1 worker  2 workers  percent"
    for what, times in (
        ("plain processes, the floor", found.plain),
        ("workers that are there", found.warm),
        ("whole runs, with start-up", found.whole),
    ):
        yield f"  {what:<32}{times.one:>8.1f} s{times.two:>9.1f} s{times.percent:>9.1f}"
    relative = 100 * found.warm.percent / found.plain.percent
    yield f"  workers, to reach {BUDGET:.0f} {found.warm.percent:>41.1f}"
    yield f"  workers over the floor {relative:>38.1f}"


def calibrated(seconds: float) -> int:
    """Return how many rounds of arithmetic take so long here."""
    burnt(1)
    started, rounds = time.perf_counter(), 200
    burnt(rounds)
    return max(1, round(seconds * rounds / (time.perf_counter() - started)))


def plain(processes: int, tiles: int, rounds: int) -> float:
    """Return the seconds that processes take for as much arithmetic and no more."""
    with get_context("spawn").Pool(processes, initializer=one_thread) as pool:
        pool.map(burnt, [1] * 2 * processes, chunksize=1)
        started = time.perf_counter()
        pool.map(burnt, [rounds] * tiles, chunksize=1)
        return time.perf_counter() - started


def one_thread() -> None:
    """Compute on one thread, as tiles do."""
    import torch

    torch.set_num_threads(1)


def warm(folder: Path, workers: int, tiles: int, rounds: int) -> float:
    """Return the seconds that tiles take on workers that have computed before."""
    with warmed(folder, "burn", workers) as options:
        return ran(folder / "run", "burn", options, tile=tiles, rounds=rounds).wall


@contextmanager
def warmed(folder: Path, study: str, workers: int) -> Iterator[RunOptions]:
    """Start workers that have computed something when the block begins.

    Args:
        folder: for a store.
        study: whose tiles they compute.
        workers: processes of this machine.

    Yields:
        Options of runs on them.
    """
    with local_client(workers, [], dashboard=False) as client:
        scheduler: Any = client.scheduler
        options = RunOptions(scheduler=scheduler.address)
        ran(folder / "before", study, options, tile=4 * workers)
        yield options


def whole(folder: Path, workers: int, tiles: int, rounds: int) -> float:
    """Return the seconds of a run that starts its workers; one is the run itself."""
    started = time.perf_counter()
    ran(folder, "burn", RunOptions(workers=workers), tile=tiles, rounds=rounds)
    return time.perf_counter() - started


def ran(
    folder: Path, study: str, options: RunOptions, *, tile: int, **params: float
) -> Lasting:
    """Run a study on a new store.

    Args:
        folder: the store.
        study: name of the study and its stage.
        options: how to compute.
        tile: number of tiles.
        params: of the stage.

    Returns:
        How long its tiles took.
    """
    lasting = Lasting()
    overrides = [f"axes.tile={tile}"]
    overrides += [f"stages.{study}.{name}={value}" for name, value in params.items()]
    results = run(
        HERE / f"{study}.yaml",
        store=folder,
        overrides=overrides,
        options=options,
        observer=lasting,
    )
    assert results.run is not None
    assert not results.run.failures, results.run.failures
    return lasting


def sixteen(folder: Path, waves: int, naps: list[float]) -> Iterator[str]:
    """Measure tiles that sleep on sixteen workers, processes of their own.

    Args:
        folder: for the stores.
        waves: tiles per worker.
        naps: seconds of a tile.

    Yields:
        Lines of a table.
    """
    tiles = SLEEPERS * waves
    yield f"{tiles} tiles that sleep, {SLEEPERS} workers        ideal     took  percent"
    with warmed(folder, "nap", SLEEPERS) as options:
        for nap in naps:
            place, before = folder / str(nap), processor_time()
            took = ran(place, "nap", options, tile=tiles, seconds=nap)
            theirs, ideal = processor_time() - before, nap * waves
            yield (
                f"  of {nap:<4g} s {ideal:>36.1f} s{took.wall:>7.1f} s"
                f"{100 * ideal / took.wall:>9.1f}"
            )
            yield (
                f"    processor time per tile: {1000 * took.cpu / tiles:.1f} ms of run "
                f"and scheduler, {1000 * theirs / tiles:.1f} ms of workers"
            )


def processor_time() -> float:
    """Return the seconds of processor time that this process's workers have spent."""
    workers = psutil.Process().children(recursive=True)
    return sum(sum(one.cpu_times()[:2]) for one in workers)
