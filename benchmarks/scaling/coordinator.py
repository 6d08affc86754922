"""What one tile costs the process that coordinates a run, and where that goes.

The runner here computes each tile off the clock, as workers would elsewhere. What is
left is the engine: schedule, claims, jobs, receipts, commits, journal, on a store in a
folder, all durable. What Dask adds is part of the table of sixteen workers.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from benchmarks.scaling.clock import Clock, Lasting
from curvflow.flows.graph.open_study import OpenedStudy, open_study
from curvflow.flows.graph.stopping import Stopping
from curvflow.flows.graph.tiles import TileJob
from curvflow.flows.run import run as engine
from curvflow.flows.run.compute import Snapshots, carried_out
from curvflow.flows.run.queue import TileJobs
from curvflow.flows.run.runners.base import Needs, Returned
from curvflow.flows.run.work import Publisher
from curvflow.schemas.options import RunOptions
from curvflow.stores.base import Store
from curvflow.stores.commits import LocalCommits
from curvflow.tasks.registry import Machine

HERE = Path(__file__).parent
BUDGET = 10.0  # milliseconds per tile
OUT = 32  # tiles that are with workers at a time: 16 that compute, 16 that wait
WIDE = 64
CREATING, LISTING = "of these, creating entries", "of these, listing entries"
PARTS = (
    "widths",
    "claims",
    "jobs, pickled",
    "receipts",
    "commits",
    "journal",
    "look-ups",
)


@dataclass(frozen=True)
class Cost:
    """What the tiles of one run cost.

    Attributes:
        nodes: of the study.
        tiles: that they made.
        wall: milliseconds per tile.
        cpu: milliseconds of processor time per tile.
        parts: milliseconds per tile by part.
        entries: of the log and of the claims, per tile.
        log_bytes: of the log per node.
    """

    nodes: int
    tiles: int
    wall: float
    cpu: float
    parts: Mapping[str, float]
    entries: float
    log_bytes: float


class Apart:
    """A runner whose own time can be told apart: it computes as soon as it is given.

    Attributes:
        tiles: number that came.
        wall: seconds that computing them took.
        cpu: processor time of that.
    """

    def __init__(self, store: Store) -> None:
        self.tiles, self.wall, self.cpu = 0, 0.0, 0.0
        self._store, self._partials = store, Snapshots(store, Stopping())
        self._out: list[tuple[int, Returned]] = []

    @contextmanager
    def opened(self, *_: object, **__: object) -> Iterator[object]:
        """Stand in for what opens runners.

        Yields:
            What gives a run its runner.
        """
        yield lambda _: self

    def room(self, needs: Needs) -> int:
        """Leave room for as many tiles as workers would."""
        return OUT - len(self._out)

    def submit(self, job: TileJob, *, needs: Needs, priority: float) -> int:
        """Make the tile ready to travel, and compute it off the clock."""
        self.tiles += 1
        self.pickled(job)
        wall, cpu = time.perf_counter(), time.process_time()
        returned = carried_out(self._store, job, Machine(), self._partials)
        self._out.append((self.tiles, returned))
        self.wall += time.perf_counter() - wall
        self.cpu += time.process_time() - cpu
        return self.tiles

    def pickled(self, job: TileJob) -> bytes:
        """Return the tile as it would travel."""
        return pickle.dumps(job)

    def wait(self, seconds: float) -> list[tuple[int, Returned]]:
        """Return one tile, as workers end one after another."""
        return [self._out.pop(0)] if self._out else []


def cost(folder: Path, study: str, nodes: int) -> Cost:
    """Measure the run of one study.

    Args:
        folder: for its store.
        study: `alone` or `together`, which says how wide its tiles are.
        nodes: of it, in two stages.

    Returns:
        What its tiles cost.
    """
    where, size = HERE / f"{study}.yaml", [f"axes.seed={nodes // 2}"]
    opened = open_study(where, store=folder, overrides=size, create=True)
    clock, lasting, apart = Clock(), Lasting(), Apart(opened.store)
    with mock.patch.object(engine, "open_runner", apart.opened):
        _run(opened, clock, lasting, apart)
    each = 1000 / apart.tiles
    entries = [one.stat().st_size for one in (folder / "commits").glob("*.json")]
    return Cost(
        nodes,
        apart.tiles,
        (lasting.wall - apart.wall) * each,
        (lasting.cpu - apart.cpu) * each,
        {part: clock.seconds[part] * each for part in (*PARTS, CREATING, LISTING)},
        (len(entries) + clock.calls["claims"]) / apart.tiles,
        sum(entries) / nodes,
    )


def _run(opened: OpenedStudy, clock: Clock, lasting: Lasting, apart: Apart) -> None:
    store = opened.store
    options = RunOptions(tile_bytes=WIDE << 20)  # a megabyte a node: 64 to a tile
    with ExitStack() as stack:
        for owner, name, label in (
            (TileJobs, "width", "widths"),
            (store.claims, "take", "claims"),
            (TileJobs, "job", "jobs, pickled"),
            (apart, "pickled", "jobs, pickled"),
            (Publisher, "receipt", "receipts"),
            (store, "commit", "commits"),
            (store, "append_event", "journal"),
            (store, "live", "look-ups"),
            (store, "index_of", "look-ups"),
            (LocalCommits, "create", CREATING),
            (LocalCommits, "after", LISTING),
        ):
            stack.enter_context(clock.on(owner, name, label))
        engine.run_study(
            opened.study, store, opened.files, options=options, observer=lasting
        )


def table(folder: Path, sizes: list[int]) -> Iterator[str]:
    """Measure studies of some sizes in narrow and in wide tiles.

    Args:
        folder: for the stores.
        sizes: numbers of nodes.

    Yields:
        Lines of a table.
    """
    cost(folder / "warm", "alone", 4)
    found = [
        cost(folder / f"{study}-{nodes}", study, nodes)
        for study in ("alone", "together")
        for nodes in sizes
    ]
    yield _line("coordinator, milliseconds per tile", [f"{c.nodes}" for c in found])
    yield _line("  tiles", [f"{c.tiles}" for c in found])
    yield _line(f"  wall, to reach {BUDGET:.0f}", [f"{c.wall:.2f}" for c in found])
    yield _line("  processor", [f"{c.cpu:.2f}" for c in found])
    for part in (*PARTS, CREATING, LISTING):
        yield _line(f"  {part}", [f"{c.parts[part]:.2f}" for c in found])
    rest = [c.wall - sum(c.parts[part] for part in PARTS) for c in found]
    yield _line("  the rest", [f"{one:.2f}" for one in rest])
    yield _line("  entries of log and claims", [f"{c.entries:.2f}" for c in found])
    yield _line("  bytes of log per node", [f"{c.log_bytes:.0f}" for c in found])


def _line(what: str, values: list[str]) -> str:
    return f"{what:<36}" + "".join(f"{value:>9}" for value in values)
