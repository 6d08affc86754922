"""Carry out a plan: tiles go out to a runner as they can, results are published."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from curvflow.errors import ClusterError, InputError, RequestError, StoreError
from curvflow.flows.graph.files import SourceFiles
from curvflow.flows.graph.graph import Node
from curvflow.flows.graph.jobs import Computed, Failed
from curvflow.flows.graph.lookup import look_up
from curvflow.flows.graph.stopping import Stopping
from curvflow.flows.plan.plan import Plan
from curvflow.flows.plan.resume import Earlier
from curvflow.flows.plan.why.cost import Costs
from curvflow.flows.run.observer import Observer, Tally
from curvflow.flows.run.publish import Publisher
from curvflow.flows.run.repair import Healing, old_company, retire_changed
from curvflow.flows.run.runners.base import (
    Broken,
    Died,
    Finished,
    Interrupted,
    LostInput,
    Needs,
    Returned,
    Runner,
)
from curvflow.flows.run.schedule import Orders, Schedule, needs_of
from curvflow.flows.run.shared_work import Others
from curvflow.flows.run.tile.compute import failure
from curvflow.schemas.options import RunOptions
from curvflow.schemas.records.receipts import RunRecord
from curvflow.schemas.words import counted
from curvflow.stores.base import Store


@dataclass(frozen=True)
class Sent:
    """A tile that is out.

    Attributes:
        nodes: of the tile.
        losses: how often a process died over it, or over the larger one it is part of.
        in_company: it repeats a tile, with all that was once computed beside it.
        interruptions: how often its worker took the run for gone.
    """

    nodes: Sequence[Node]
    losses: int = 0
    in_company: bool = False
    interruptions: int = 0

    def again(self) -> list[Sent]:
        """Return what to try after its process died: all of it, then its halves.

        Returns:
            Nothing if it is one node whose process died before.
        """
        if not self.losses:
            return [replace(self, losses=1)]
        middle = len(self.nodes) // 2
        halves = (self.nodes[:middle], self.nodes[middle:])
        return [replace(self, nodes=half) for half in halves] if middle else []

    def fits(self, reports: Sequence[Computed | Failed]) -> int | None:
        """Return how many nodes did fit in one call; None if nothing was too large.

        Args:
            reports: what became of the nodes.

        Returns:
            Their number; None as well if some failed, for that may be why the tile was
            halved.
        """
        widths = [one.width for one in reports if isinstance(one, Computed)]
        if len(widths) < len(reports) or not self.nodes[0].kind.vectorised:
            return None
        return max(widths) if self.losses or max(widths) < len(widths) else None


class Outgoing:
    """The tiles that are out, by the runner's numbers."""

    def __init__(self) -> None:
        self._tiles: dict[int, Sent] = {}
        self._keys: Counter[str | None] = Counter()

    def __bool__(self) -> bool:
        """Return whether any is out."""
        return bool(self._tiles)

    def __contains__(self, key: str) -> bool:
        """Return whether a tile with the node of an action key is out."""
        return self._keys[key] > 0

    def add(self, number: int, tile: Sent) -> None:
        """Take note that a tile is out."""
        self._tiles[number] = tile
        self._keys.update(node.key for node in tile.nodes)

    def back(self, number: int) -> Sent:
        """Take note that a tile is out no more; return it."""
        tile = self._tiles.pop(number)
        self._keys.subtract(node.key for node in tile.nodes)
        return tile


# Seconds between looks at what is asked of the run while tiles are out.
LOOK_EVERY = 1.0

# Times that a tile's worker may take the run for gone: it was asleep, say.
MOST_INTERRUPTIONS = 20
NEEDS: tuple[Needs, ...] = ("gpu", "cpu")


class Work:
    """One run of a plan."""

    def __init__(
        self,
        plan: Plan,
        run: RunRecord,
        store: Store,
        files: SourceFiles,
        options: RunOptions,
        observer: Observer,
        tally: Tally,
        stop: Stopping,
    ) -> None:
        """Prepare to carry out a plan.

        Args:
            plan: what to do.
            run: the run's record, already begun.
            store: where results go.
            files: files that parameters name.
            options: how to compute.
            observer: who watches.
            tally: counts what is done.
            stop: tells when the run is asked to end.
        """
        self._plan, self._store, self._observer = plan, store, observer
        self._stop, self._tally = stop, tally
        self._orders = Orders(plan, store, files, options)
        self._healing = Healing(plan, store, tally, observer)
        self._others = Others(store, run, options.silence, observer.tell)
        self._publisher = Publisher(store, run, tally=tally, codes=plan.codes)
        self._costs = Costs(plan.graph, plan.index)
        self._out = Outgoing()
        self._twins: dict[str, list[Node]] = defaultdict(list)
        self._lost: dict[str, LostInput] = {}  # by payload
        self._repeated: set[str | None] = set()  # payloads computed in old company
        self._moved = False

    def do(self, runner: Runner, check: Callable[[Plan], None]) -> None:
        """Compute everything that is not done and can be.

        Args:
            runner: where to compute.
            check: asked whenever more is to be computed than was planned.

        Raises:
            RequestError: the runner cannot do what is asked of it.
            ClusterError: the runner is lost, or has no worker left.
            StoreError: results cannot be written, or not be read again and again.
            Stopped: the run was asked to end.
        """
        self._healing.strike_lost()
        self._begin()
        while True:
            self._look_at_due()
            self._send(runner)
            if self._out and self._stop.signal is not None:
                for number in runner.withdraw():
                    self._out.back(number)
            if self._out:
                for number, returned in self._came_back(runner):
                    self._back(self._out.back(number), returned, runner)
            elif not self._goes_on(check):
                break
        done = all(node.state == "cached" for node in self._plan.graph)
        assert done or self._tally.failures, "nodes are left over without a reason"
        self._others.sweep()

    def _came_back(self, runner: Runner) -> list[tuple[int, Returned]]:
        try:
            return runner.wait(LOOK_EVERY)
        except ClusterError:
            self._stop.check()  # a run that is to end is told of nothing else
            raise

    def _begin(self) -> None:
        index, codes = self._store.index(), self._plan.codes
        self._earlier = Earlier(index, codes, self._store)
        self._twins = defaultdict(list)
        for node in self._plan.graph:
            if node.state == "cached" and node.key:
                self._twins[node.key].append(node)
        self._schedule = Schedule(
            self._plan.graph,
            width=self._orders.width,
            seconds=lambda node: self._costs.of(node)[0] or 0.0,
        )

    def _goes_on(self, check: Callable[[Plan], None]) -> bool:
        """Go on where no tile can be sent; False if all is done that can be."""
        self._stop.check()
        if self._lost or self._moved:
            self._begin_again()
            check(self._plan)
            return True
        if not self._schedule.is_moving() and not self._schedule.release():
            if not self._others.busy:
                return False
            self._others.wait(self._stop)
        return True

    def _begin_again(self) -> None:
        """Go through the plan anew: something that was done is not, or has changed."""
        for one in self._lost.values():
            self._healing.lost(one)
        if self._moved:
            self._healing.compare_all()
        self._lost.clear()
        self._repeated.clear()
        self._moved = False
        self._others.busy.clear()
        self._begin()

    def _look_at_due(self) -> None:
        """Find out which nodes are done, to be computed, or hopeless by now."""
        if self._others.is_time():
            self._schedule.ready(self._others.tried_again())
        while due := self._schedule.due():
            look_up(due, self._store.index_of)
            for node in due:
                self._twins[node.key or ""].append(node)
            found = [node for node in due if node.state == "cached"]
            self._publisher.rely_on(found)
            passed_on = self._publisher.pass_on(due, self._twins)
            self._schedule.done([*found, *passed_on])
            stale = [node for node in due if node.state == "stale"]
            self._earlier.find(stale)
            failures = self._tally.failures
            self._schedule.ready(n for n in stale if n.key not in failures)
            for node in (n for n in stale if n.key in failures):
                self._tally.fail([node], failures[node.key or ""])
                self._schedule.failed([node])
            for node in found:
                self._tally.done[node.stage] += 1
            self._tell({node.stage for node in due})

    def _send(self, runner: Runner) -> None:
        """Give the runner the tiles that go first, as many as it has room for."""
        while self._stop.signal is None and not self._lost and not self._moved:
            allowed = [needs for needs in NEEDS if runner.room(needs) > 0]
            tile = self._schedule.take(allowed)
            if not tile:
                break
            if part := self._claimed(tile):
                self._submit(Sent(part), runner)

    def _claimed(self, tile: Sequence[Node]) -> list[Node]:
        """Return those nodes that no other run is at work on, nor has done by now."""
        asked = {n.key: n for n in tile if n.key and n.key not in self._out}
        ours = self._others.claim(list(asked.values()))
        done = self._store.live(asked)
        self._others.finished(done)
        self._schedule.done(self._publisher.adopt(done.values(), self._twins))
        return [node for key, node in ours.items() if key not in done]

    def _submit(self, out: Sent, runner: Runner) -> None:
        first = out.nodes[0]
        self._observer.tile_begins(first.stage)
        keys = [node.key for node in out.nodes]
        self._publisher.note("begins", first.stage, keys)
        try:
            job = self._orders.job(out.nodes)
        except InputError as error:  # a file is not what it was planned to be
            reports = [failure(error) for _ in out.nodes]
            return self._finished(out, Finished(reports), runner)
        priority = self._schedule.priority(first)
        number = runner.submit(job, needs=needs_of(first), priority=priority)
        self._out.add(number, out)
        return None

    def _back(self, out: Sent, returned: Returned, runner: Runner) -> None:
        """Do with a tile what its fate asks for."""
        match returned:
            case Finished():
                self._finished(out, returned, runner)
            case LostInput():
                payload = returned.receipt.payload or returned.receipt.key
                self._lost.setdefault(payload, returned)
            case Died():
                self._died(out, returned, runner)
            case Interrupted():
                self._say(returned.told)
                if self._stop.signal is None:
                    self._taken_for_gone(out, runner)
            case Broken(error, is_request):
                raise RequestError(error) if is_request else StoreError(error)

    def _finished(self, out: Sent, returned: Finished, runner: Runner) -> None:
        self._say(returned.told)
        graph, reports = self._plan.graph, returned.reports
        company = old_company(graph, out.nodes, reports)
        if company and not out.in_company:
            return self._repeat(company, runner)
        changed = retire_changed(self._store, self._observer, out.nodes, reports)
        self._moved = self._moved or changed
        self._publish(out.nodes, reports)
        if (fits := out.fits(reports)) is not None:
            self._schedule.narrow(out.nodes[0], fits)
        for name in returned.kept:
            self._store.drop_snapshot(name)
        return None

    def _repeat(self, company: Sequence[Node], runner: Runner) -> None:
        """Compute a tile's old company, for the first of its tiles that asks for it."""
        payloads = {node.receipt.payload for node in company if node.receipt}
        if not payloads <= self._repeated:
            self._repeated |= payloads
            self._submit(Sent(company, in_company=True), runner)

    def _publish(
        self, tile: Sequence[Node], reports: Sequence[Computed | Failed]
    ) -> None:
        stage, done, failed = tile[0].stage, [], []
        for node, report in zip(tile, reports, strict=True):
            assert node.key is not None
            if isinstance(report, Computed):
                done.append(self._publisher.receipt(node, report))
            else:
                self._tally.fail(self._twins[node.key], report)
                failed.append(node.key)
        self._schedule.done(self._publisher.publish(stage, done, self._twins))
        self._others.finished([receipt.key for receipt in done])
        if failed:
            self._publisher.note("failed", stage, failed)
            self._others.finished(failed)
            self._others.give_up()
            self._schedule.failed(node for key in failed for node in self._twins[key])
        self._tell({stage})

    def _taken_for_gone(self, out: Sent, runner: Runner) -> None:
        if out.interruptions >= MOST_INTERRUPTIONS:
            raise StoreError(
                f"{self._store.location}: expected workers to see this run's signs of "
                f"life, got {MOST_INTERRUPTIONS} times none. Look at their caches of "
                "the file system; what is finished is kept."
            )
        self._submit(replace(out, interruptions=out.interruptions + 1), runner)

    def _died(self, out: Sent, died: Died, runner: Runner) -> None:
        """Try a tile again whose process died; then its halves; then give up a node.

        A run that is to end leaves it to the next one.
        """
        if self._stop.signal is not None:
            return
        nodes, stage = out.nodes, out.nodes[0].stage
        held = f"{stage}: {counted(len(nodes), 'node')}"
        again = out.again()
        if again:
            what = "again" if len(again) == 1 else "each half"
            self._observer.warn(f"{held}: {died.reason}; trying {what}")
        else:
            error = f"the process that computed it died twice: {died.reason}"
            self._publish(nodes, [Failed(error, error)])
        for one in again:
            self._submit(one, runner)

    def _say(self, told: Iterable[str]) -> None:
        for line in told:
            self._observer.tell(line)

    def _tell(self, stages: Iterable[str]) -> None:
        for stage in stages:
            done, failed = self._tally.done[stage], self._tally.failed(stage)
            self._observer.stage_at(stage, done=done, failed=failed)
