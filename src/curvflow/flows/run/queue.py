"""The queue of a run: tiles in the order they go in, their jobs, those in flight.

A tile can be computed once each of its nodes is done, can be computed, or never will
be; one that is computed node by node, as soon as any of them can. The one furthest down
the study goes first, so that whole cells get finished early; among equals the one with
the longest way to the end, so that no long one comes last.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from curvflow.errors import ClusterError, InputError
from curvflow.flows.graph.graph import Graph, Node, can_go_without, producers
from curvflow.flows.graph.tiles import (
    NODE_BY_NODE_WIDTH,
    Singles,
    TileJob,
    groups_of,
    load,
    tile_job,
    was_plain,
    width_for,
)
from curvflow.flows.plan.resume import ShorterResults
from curvflow.flows.reads.ledgers import forget_imports
from curvflow.flows.reads.windows import calling
from curvflow.flows.run.compute import estimated, failure
from curvflow.flows.run.context import Journal, RunContext
from curvflow.flows.run.retry import TileInFlight
from curvflow.flows.run.runners.base import Finished, Needs, Returned, Runner

NEEDS: tuple[Needs, ...] = ("gpu", "cpu")

# Seconds between looks at requests to end while tiles are in flight.
LOOK_EVERY = 1.0


class TileJobs:
    """Makes the jobs of one run's tiles."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._singles = Singles(context.plan.graph)

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
        modules = self._modules(nodes)
        return tile_job(
            plan.graph,
            nodes,
            content,
            code=code,
            modules=modules,
            singles=self._singles,
        )

    def _modules(self, nodes: Sequence[Node]) -> Mapping[Node, tuple[str, ...]]:
        modules = {node: self._context.plan.codes.modules(node) for node in nodes}
        if self._context.options.record_reads:
            return modules
        for names in modules.values():
            forget_imports(names)
        return {}

    def width(self, node: Node, alike: Sequence[Node]) -> int:
        """Return the number of nodes like this one that fit into a tile's memory.

        Data that all of them take are counted once.
        """
        if not node.kind.vectorised:
            return NODE_BY_NODE_WIDTH
        try:
            job = self.job([node])
            (member,) = load(self._context.store, node.kind, job.members)
            with calling(job.members[0].modules):  # a memo may keep what it reads
                one = estimated(node.kind, member)
        # A fault of a member, or of a user's model, is met and reported by its tile.
        except Exception:
            return NODE_BY_NODE_WIDTH
        budget = self._context.options.tile_bytes
        share_data = _share_input(alike, "data")
        each = one.each(share_data=share_data)
        return width_for(each, budget - one.fixed(share_data=share_data))


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
        reads = context.plan.reads
        self._shorter = ShorterResults(store.index(), codes, store, reads)
        self.schedule = Schedule(
            context.plan.graph,
            width=self._jobs.width,
            seconds=lambda node: context.costs.of(node)[0] or 0.0,
            partial=context.options.partial,
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


Rank = tuple[float, int]  # lowest first; no two tiles have the same


@dataclass(eq=False)
class _Group:
    """Nodes of equal signature; cut into tiles when the first of them can be computed.

    Attributes:
        nodes: all of the stage that are alike, in order.
        place: of the group and so of its tiles in the study.
        fits: nodes that one call has computed so far; 0 before the group is cut.
    """

    nodes: Sequence[Node]
    place: int
    fits: int = 0


@dataclass(eq=False)
class _Tile:
    """Nodes to be computed in one call.

    Attributes:
        group: that it was cut from.
        place: in the study.
        unsettled: number of nodes that may still turn out to be done or to fail.
        ready: nodes to be computed.
        is_queued: whether it waits to be taken.
    """

    group: _Group
    place: int
    unsettled: int = 0
    ready: list[Node] = field(default_factory=list)
    is_queued: bool = False


class Schedule:
    """The order of work on a study's nodes that are not done."""

    def __init__(
        self,
        graph: Graph,
        *,
        width: Callable[[Node, Sequence[Node]], int],
        seconds: Callable[[Node], float],
        partial: bool = False,
    ) -> None:
        """Begin with what a plan left open.

        `width` gives the number of nodes that fit in one call, from a node that can be
        computed and all like it; `seconds` the predicted time of a node, 0 if unknown.
        With `partial` nodes that reduce over many go without those that fail.
        """
        self._width, self._seconds, self._partial = width, seconds, partial
        self._failed: set[Node] = set()
        self._depths = _depths(graph)
        self._takers: dict[Node, list[Node]] = defaultdict(list)
        self._lacks: dict[Node, int] = {}  # inputs that are not there yet
        self._unsettled = {node for node in graph if node.state != "cached"}
        self._due: list[Node] = []
        self._groups: dict[Node, _Group] = {}
        self._tiles: dict[Node, _Tile] = {}
        self._places: dict[Node, int] = {}
        self._queues: dict[Needs, list[tuple[Rank, _Tile]]] = {"cpu": [], "gpu": []}
        self._to_the_end: dict[Node, float] = {}
        for stage, nodes in graph.nodes.items():
            if any(node in self._unsettled for node in nodes):
                self._add(nodes, groups_of(graph, stage))

    def _add(self, nodes: Sequence[Node], groups: Iterable[list[Node]]) -> None:
        for group in groups:
            whole = _Group(group, place=len(self._groups))
            for node in group:
                self._groups[node], self._places[node] = whole, len(self._places)
        for node in nodes:
            if node in self._unsettled:
                node.absent = ()
                lacking = set(producers(node)) & self._unsettled
                for producer in lacking:
                    self._takers[producer].append(node)
                self._lacks[node] = len(lacking)
                if not lacking:
                    self._due.append(node)

    def due(self) -> list[Node]:
        """Return the nodes all of whose inputs are there since the last call."""
        due, self._due = self._due, []
        return due

    def done(self, nodes: Iterable[Node]) -> None:
        """Note that nodes have results, whichever run computed them."""
        for node in nodes:
            if self._lacks.pop(node, None) is None:
                continue  # it had one before
            self._settle(node)
            for taker in self._takers.pop(node, ()):
                self._lacks[taker] -= 1
                if not self._lacks[taker]:
                    self._due.append(taker)

    def failed(self, nodes: Iterable[Node]) -> None:
        """Note that nodes, and with them all that take them, get no result."""
        for node in nodes:
            self._settle(node)
            self._failed.add(node)
            for taker in self._takers.pop(node, ()):
                if taker in self._failed:
                    continue
                if self._partial and can_go_without(taker, node):
                    self._go_without(taker, node)
                else:
                    self.failed([taker])

    def _go_without(self, taker: Node, node: Node) -> None:
        taker.absent = (*taker.absent, node)
        self._lacks[taker] -= 1
        if not self._lacks[taker]:
            self._due.append(taker)

    def ready(self, nodes: Iterable[Node]) -> None:
        """Put nodes in their tiles: they can be computed, or tried again."""
        for node in nodes:
            if node not in self._tiles:
                self._cut(node)
            self._tiles[node].ready.append(node)
            self._settle(node)

    def take(self, allowed: Iterable[Needs]) -> list[Node]:
        """Return the nodes of the tile that goes first, of those there is room for."""
        while queues := [q for needs in allowed if (q := self._queues[needs])]:
            queue = min(queues)
            _, tile = queue[0]
            nodes: dict[str | None, Node] = {}
            for node in sorted(tile.ready, key=self._places.__getitem__):
                if node.state == "stale":
                    nodes.setdefault(node.key, node)
            # Those that were computed alone are so again, and go first.
            ordered = sorted(nodes.values(), key=was_plain, reverse=True)
            fits = 1 if ordered and was_plain(ordered[0]) else tile.group.fits
            part, tile.ready = ordered[:fits], ordered[fits:]
            if not tile.ready:
                heappop(queue)
                tile.is_queued = False
            if part:
                return part
        return []

    def priority(self, node: Node) -> float:
        """Return the priority of a node; larger goes first."""
        remaining = self._remaining(node)
        return self._depths[node.stage] + remaining / (1.0 + remaining)

    def narrow(self, node: Node, fits: int) -> None:
        """Let later tiles of a node's group hold no more nodes than did fit."""
        group = self._groups[node]
        group.fits = min(group.fits, fits)

    def goes_on(self) -> bool:
        """Return whether there is more to send, if need be tiles that wait for nodes.

        Such tiles are released when nothing else is left: other runs are computing
        what the rest of their nodes need.
        """
        return bool(self._due) or self.release()

    def release(self) -> bool:
        """Queue tiles that wait for some of their nodes; False if there are none."""
        waiting = {t for t in self._tiles.values() if t.ready and not t.is_queued}
        for tile in waiting:
            self._queue(tile)
        return bool(waiting)

    def _settle(self, node: Node) -> None:
        if node in self._unsettled:
            self._unsettled.remove(node)
            if node in self._tiles:
                self._tiles[node].unsettled -= 1
        if node in self._tiles:
            tile = self._tiles[node]
            # What is computed node by node has no siblings to wait for.
            if tile.ready and not (tile.unsettled and node.kind.vectorised):
                self._queue(tile)

    def _cut(self, node: Node) -> None:
        """Cut a group into tiles at a width that does not depend on missing nodes."""
        group = self._groups[node]
        width = group.fits = self._width(node, group.nodes)
        for start in range(0, len(group.nodes), width):
            nodes = group.nodes[start : start + width]
            tile = _Tile(group, self._places[nodes[0]])
            tile.unsettled = len(self._unsettled.intersection(nodes))
            self._tiles.update(dict.fromkeys(nodes, tile))

    def _queue(self, tile: _Tile) -> None:
        if not tile.is_queued:
            tile.is_queued = True
            first = tile.ready[0]
            rank = -self.priority(first), tile.place
            heappush(self._queues[needs_of(first)], (rank, tile))

    def _remaining(self, node: Node) -> float:
        """Return the seconds of the longest way from the start of a node to the end."""
        if node not in self._to_the_end:
            after = (self._remaining(taker) for taker in self._takers.get(node, ()))
            self._to_the_end[node] = self._seconds(node) + max(after, default=0.0)
        return self._to_the_end[node]


def needs_of(node: Node) -> Needs:
    """Return the type of device that a node is to be computed on."""
    return "gpu" if node.kind.accelerated else "cpu"


def _depths(graph: Graph) -> Mapping[str, int]:
    depths: dict[str, int] = {}
    for stage, nodes in graph.nodes.items():
        before = {producer.stage for node in nodes[:1] for producer in producers(node)}
        depths[stage] = 1 + max((depths[name] for name in before), default=0)
    return depths
