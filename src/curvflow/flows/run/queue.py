"""The queue of a run: tiles in their order, the jobs made of them, those in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from curvflow.errors import ClusterError, InputError
from curvflow.flows.graph.graph import Node
from curvflow.flows.graph.tiles import (
    NODE_BY_NODE_WIDTH,
    TileJob,
    load,
    tile_job,
    width_for,
)
from curvflow.flows.plan.resume import ShorterResults
from curvflow.flows.run.context import Journal, RunContext
from curvflow.flows.run.retry import TileInFlight
from curvflow.flows.run.runners.base import Finished, Needs, Returned, Runner
from curvflow.flows.run.schedule import Schedule, needs_of
from curvflow.flows.run.tile.compute import estimated, failure

NEEDS: tuple[Needs, ...] = ("gpu", "cpu")

# Seconds between looks at requests to end while tiles are in flight.
LOOK_EVERY = 1.0


class TileJobs:
    """Makes the jobs of one run's tiles."""

    def __init__(self, context: RunContext) -> None:
        self._context = context

    def job(self, nodes: Sequence[Node]) -> TileJob:
        """Return the job of a tile all of whose inputs are there.

        Raises:
            InputError: a file that parameters name has changed since it was planned.
        """
        plan, files = self._context.plan, self._context.files
        # Nodes with equal parameters share one form, and so one reading of the files.
        first = {id(node.form): node for node in nodes}
        content = {
            form: files.read(node.params, node.form) for form, node in first.items()
        }
        code = [plan.codes.of(node).fingerprint for node in nodes]
        return tile_job(plan.graph, nodes, content, code)

    def width(self, node: Node, alike: Sequence[Node]) -> int:
        """Return the number of nodes like this one that fit into a tile's memory.

        Data that all of them take are counted once.
        """
        if not node.kind.vectorised:
            return NODE_BY_NODE_WIDTH
        try:
            job = self.job([node])
            (member,) = load(self._context.store, node.kind, job.members)
            whole, data = estimated(node.kind, member)
        # A fault of a member, or of a user's model, is met and reported by its tile.
        except Exception:
            return NODE_BY_NODE_WIDTH
        budget = self._context.options.tile_bytes
        if not _share_input(alike, "data"):
            return width_for(whole, budget)
        return width_for(whole - data, budget - data)


def _share_input(nodes: Sequence[Node], name: str) -> bool:
    """Return whether nodes take one and the same result as an input."""
    producers = {
        id(taken.node) for node in nodes for taken in node.inputs.get(name, ())
    }
    return len(producers) == 1


class Queue:
    """The tiles of one run: scheduled, and in flight by the runner's numbers.

    Attributes:
        schedule: of the tiles that were not sent yet.
    """

    schedule: Schedule

    def __init__(self, context: RunContext, journal: Journal, runner: Runner) -> None:
        self._context, self._journal, self._runner = context, journal, runner
        self._jobs = TileJobs(context)
        self._in_flight: dict[int, TileInFlight] = {}
        self._unsent: list[tuple[TileInFlight, Returned]] = []  # for want of a file
        self._keys: Counter[str | None] = Counter()

    def __bool__(self) -> bool:
        """Return whether tiles are still to return."""
        return bool(self._in_flight or self._unsent)

    def restart(self) -> None:
        """Schedule the nodes that are not done, by the log as it is now."""
        context, store = self._context, self._context.store
        codes = context.plan.codes
        self._shorter = ShorterResults(store.index(), codes, store)
        self.schedule = Schedule(
            context.plan.graph,
            width=self._jobs.width,
            seconds=lambda node: context.costs.of(node)[0] or 0.0,
        )

    def put(self, stale: Sequence[Node]) -> None:
        """Schedule nodes whose inputs are there, with shorter results to resume."""
        self._shorter.assign(stale)
        failures = self._context.counts.failures
        self.schedule.ready(node for node in stale if node.key not in failures)
        for node in (node for node in stale if node.key in failures):
            self._context.counts.fail([node], failures[node.key or ""])
            self.schedule.failed([node])

    def take(self) -> list[Node]:
        """Return the tile that goes first of those that the runner has room for."""
        allowed = [needs for needs in NEEDS if self._runner.room(needs) > 0]
        return self.schedule.take(allowed)

    def not_in_flight(self, nodes: Sequence[Node]) -> list[Node]:
        """Return the nodes that are not in flight, by their own or an equal node."""
        return [node for node in nodes if not self._keys[node.key]]

    def send(self, tile: TileInFlight) -> None:
        """Send a tile to the runner; it fails if a file is not what was planned."""
        first = tile.nodes[0]
        self._context.observer.tile_begins(first.stage)
        self._journal.note("begins", first.stage, [node.key for node in tile.nodes])
        try:
            job = self._jobs.job(tile.nodes)
        except InputError as error:
            self._unsent.append((tile, Finished([failure(error)] * len(tile.nodes))))
            return
        priority = self.schedule.priority(first)
        number = self._runner.submit(job, needs=needs_of(first), priority=priority)
        self._in_flight[number] = tile
        self._keys.update(node.key for node in tile.nodes)

    def returned(self) -> list[tuple[TileInFlight, Returned]]:
        """Wait a moment for tiles in flight; withdraw them if the run is to end.

        Raises:
            ClusterError: the runner is lost, or has no worker left.
            Stopped: the run was asked to end, and the runner is lost.
        """
        stop = self._context.stop
        if self and stop.signal is not None:
            for number in self._runner.withdraw():
                self._land(number)
        if self._unsent or not self._in_flight:
            unsent, self._unsent = self._unsent, []
            return unsent
        try:
            came_back = self._runner.wait(LOOK_EVERY)
        except ClusterError:
            stop.check()  # a run that is to end reports nothing else
            raise
        return [(self._land(number), returned) for number, returned in came_back]

    def _land(self, number: int) -> TileInFlight:
        tile = self._in_flight.pop(number)
        self._keys.subtract(node.key for node in tile.nodes)
        return tile
