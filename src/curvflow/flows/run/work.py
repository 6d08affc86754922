"""Carry out a plan: tiles are sent to a runner as they can be, results published."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from curvflow.errors import RequestError, StoreError
from curvflow.flows.graph.graph import Node, look_up
from curvflow.flows.graph.tiles import Computed, Failed
from curvflow.flows.plan.plan import Plan
from curvflow.flows.run.context import Journal, RunContext
from curvflow.flows.run.publish import Publisher
from curvflow.flows.run.queue import Queue
from curvflow.flows.run.repair import Repair
from curvflow.flows.run.retry import TileInFlight
from curvflow.flows.run.runners.base import (
    Broken,
    Died,
    Finished,
    Interrupted,
    LostInput,
    Returned,
    Runner,
)
from curvflow.flows.run.shared_work import SharedWork
from curvflow.schemas.records.receipts import RunRecord
from curvflow.schemas.words import counted


class Work:
    """One run of a plan: a queue of tiles, shared with other runs, with repair."""

    def __init__(self, context: RunContext, record: RunRecord, runner: Runner) -> None:
        journal = Journal(context.store, record)
        self._context = context
        self._queue = Queue(context, journal, runner)
        self._shared = SharedWork(context, record)
        self._repair = Repair(context)
        self._publisher = Publisher(context, journal)

    def do(self, check: Callable[[Plan], None]) -> None:
        """Compute every node that is not done and can be.

        The check is called whenever more is to be computed than was planned.

        Raises:
            RequestError: the runner cannot do what is asked of it.
            ClusterError: the runner is lost, or has no worker left.
            StoreError: results cannot be written, or not be read again and again.
            Stopped: the run was asked to end.
        """
        self._repair.retire_lost()
        self._restart()
        while True:
            self._look_up_due()
            self._send()
            if self._queue:
                for tile, returned in self._queue.returned():
                    self._receive(tile, returned)
                continue
            self._context.stop.check()
            if self._repair.is_due:
                self._repair.apply()
                self._restart()
                check(self._context.plan)
            elif not self._queue.schedule.goes_on() and not self._shared.wait():
                break
        done = all(node.state == "cached" for node in self._context.plan.graph)
        assert done or self._context.counts.failures, "nodes are left without a reason"
        self._shared.sweep()

    def _restart(self) -> None:
        """Go through the plan anew: what was done may not be any more."""
        self._queue.restart()
        self._publisher.restart()
        self._shared.busy.clear()

    def _look_up_due(self) -> None:
        """Look up the nodes whose inputs are there: done, failed, or to be computed."""
        schedule = self._queue.schedule
        schedule.ready(self._shared.retries())
        while due := schedule.due():
            look_up(due, self._context.store.index_of)
            schedule.done(self._publisher.settle(due))
            self._queue.put([node for node in due if node.state == "stale"])
            self._context.show({node.stage for node in due})

    def _send(self) -> None:
        """Claim the tiles that go first, and send what no other run has."""
        while self._context.stop.signal is None and not self._repair.is_due:
            if not (tile := self._queue.take()):
                break
            ours, done = self._shared.claim(self._queue.not_in_flight(tile))
            self._queue.schedule.done(self._publisher.adopt(done.values()))
            if ours:
                self._queue.send(TileInFlight(ours))

    def _receive(self, tile: TileInFlight, returned: Returned) -> None:
        """Publish, repair or retry a tile that came back."""
        match returned:
            case Finished(reports, kept, lines):
                self._context.tell(lines)
                for name in kept if self._finish(tile, reports) else ():
                    self._context.store.drop_snapshot(name)
            case LostInput():
                self._repair.lost(returned)
            case Died(reason):
                self._retry(tile, reason)
            case Interrupted(_, lines):
                self._context.tell(lines)
                self._resume(tile)
            case Broken(error, is_request):
                raise RequestError(error) if is_request else StoreError(error)

    def _finish(self, tile: TileInFlight, reports: Sequence[Computed | Failed]) -> bool:
        """Publish a tile; False if its original one has to be computed before."""
        original = self._repair.original_tile(tile.nodes, reports)
        if original and not tile.is_repeat:
            if self._repair.is_first(original):
                self._queue.send(TileInFlight(original, is_repeat=True))
            return False
        self._repair.compare(tile.nodes, reports)
        self._publish(tile.nodes, reports)
        if (width := tile.width_that_fit(reports)) is not None:
            self._queue.schedule.narrow(tile.nodes[0], width)
        return True

    def _publish(
        self, nodes: Sequence[Node], reports: Sequence[Computed | Failed]
    ) -> None:
        done, failed = self._publisher.publish(nodes, reports)
        self._queue.schedule.done(done)
        self._shared.finished(node.key for node in nodes if node.key)
        if failed:
            self._shared.release()
            self._queue.schedule.failed(failed)
        self._context.show({nodes[0].stage})

    def _resume(self, tile: TileInFlight) -> None:
        """Send a tile again whose worker took the run for gone, unless it is to end."""
        if self._context.stop.signal is None:
            self._queue.send(tile.after_interruption(self._context.store.location))

    def _retry(self, tile: TileInFlight, reason: str) -> None:
        """Retry a tile whose process died, unless the run is to end."""
        if self._context.stop.signal is not None:
            return
        name = f"{tile.nodes[0].stage}: {counted(len(tile.nodes), 'node')}"
        if retries := tile.after_death():
            what = "again" if len(retries) == 1 else "each half"
            self._context.observer.warn(f"{name}: {reason}; trying {what}")
        else:
            error = f"the process that computed it died twice: {reason}"
            self._publish(tile.nodes, [Failed(error, error)])
        for retry in retries:
            self._queue.send(retry)
