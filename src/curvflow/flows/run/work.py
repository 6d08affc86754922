"""Carry out a plan: tiles are sent to a runner as they can be, results published.

Published are receipts and journal; nodes are brought up to date with them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from curvflow.errors import RequestError, StoreError
from curvflow.flows.graph.graph import Node, diverged_inputs, input_digests, look_up
from curvflow.flows.graph.tiles import Computed, Failed
from curvflow.flows.plan.code.fingerprints import recorded_loads
from curvflow.flows.plan.plan import Plan
from curvflow.flows.reads.current import warnings
from curvflow.flows.reads.ledgers import Loads, source_files
from curvflow.flows.reads.windows import Observed
from curvflow.flows.run.context import Journal, RunContext
from curvflow.flows.run.queue import Queue
from curvflow.flows.run.retry import Repair, TileInFlight
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
from curvflow.schemas.records.receipts import Receipt, RunRecord, result_digest
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
            RequestError: the runner cannot fulfil the request.
            ClusterError: the runner is lost, or has no worker left.
            StoreError: results cannot be written, or not be read again and again.
            Stopped: the run was asked to end.
            StudyError: a stage to be computed declares files that are not there.
        """
        self._begin()
        self._repair.retire_outdated(self._context.plan.graph)
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

    def _begin(self) -> None:
        """Look at the files that are declared for the nodes to be computed."""
        plan = self._context.plan
        stages = {node.stage for node in plan.graph if node.state != "cached"}
        plan.reads.check(sorted(stages))
        plan.reads.begin(sorted(stages))

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
            look_up(due, self._context.store.index_of, self._context.plan.reads)
            self._repair.retire_outdated(due)
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


class Publisher:
    """Commits the results of one run, and marks their nodes as done."""

    def __init__(self, context: RunContext, journal: Journal) -> None:
        self._store, self._journal = context.store, journal
        self._plan, self._counts = context.plan, context.counts
        self._recorded: set[str] = set()  # fingerprints
        self._observer = context.observer
        self._told: set[tuple[str, str]] = set()  # stages, and what they use
        self._executed: set[str] = set()  # action keys
        # Equal parameters make several nodes one result.
        self._nodes: dict[str, list[Node]] = defaultdict(list)

    def restart(self) -> None:
        """Begin with the nodes that are done by the log as it is now."""
        self._nodes = defaultdict(list)
        for node in self._plan.graph:
            if node.state == "cached" and node.key:
                self._nodes[node.key].append(node)

    def settle(self, due: Sequence[Node]) -> list[Node]:
        """Return those of the nodes just looked up that are done without computing.

        What stands on diverged results is recorded as diverged.
        """
        for node in due:
            self._nodes[node.key or ""].append(node)
        cached = [node for node in due if node.state == "cached"]
        if any(node.receipt and node.receipt.payload for node in cached):
            self._journal.rely_on(cached)  # the plan did not name them
        passed_on = self._pass_on(due)
        for node in cached:
            self._counts.done[node.stage] += 1
        return [*cached, *passed_on]

    def _pass_on(self, nodes: Iterable[Node]) -> list[Node]:
        by_stage: dict[str, dict[str, Receipt]] = defaultdict(dict)
        for node in nodes:
            if node.state == "stale" and (diverged := diverged_inputs(node)):
                cause = diverged[0].node.receipt
                assert cause is not None
                receipt = self.receipt(node, _passed_on(cause))
                by_stage[node.stage].setdefault(receipt.key, receipt)
        return [
            node
            for stage, receipts in by_stage.items()
            for node in self._commit(stage, list(receipts.values()))
        ]

    def publish(
        self, tile: Sequence[Node], reports: Sequence[Computed | Failed]
    ) -> tuple[list[Node], list[Node]]:
        """Commit what a tile computed; return the nodes that are done, and failed."""
        stage, receipts, failed = tile[0].stage, [], []
        for node, report in zip(tile, reports, strict=True):
            assert node.key is not None
            if isinstance(report, Computed):
                reads = self._reads(node, report)
                receipts.append(self.receipt(node, report, reads))
            else:
                self._counts.fail(self._nodes[node.key], report)
                failed.append(node.key)
        done = self._commit(stage, receipts)
        if failed:
            self._journal.note("failed", stage, failed)
        return done, [node for key in failed for node in self._nodes[key]]

    def _commit(self, stage: str, receipts: Sequence[Receipt]) -> list[Node]:
        """Commit receipts whose payloads are written, and adopt the live ones."""
        if not receipts:
            return []
        live = self._store.commit(receipts)
        self._journal.note("committed", stage, [receipt.key for receipt in live])
        for receipt in live:
            if receipt.key not in self._executed:  # a repeated tile counts once
                self._executed.add(receipt.key)
                before = self._nodes[receipt.key][0].receipt
                self._counts.executed[stage] += 1
                same = before is not None and before.digest == receipt.digest
                self._counts.revived[stage] += same
        return self.adopt(live)

    def adopt(self, live: Iterable[Receipt]) -> list[Node]:
        """Mark the nodes of live receipts as done, whichever run computed them."""
        done = []
        for receipt in live:
            for node in self._nodes[receipt.key]:
                self._counts.done[node.stage] += node.state != "cached"
                node.receipt, node.state = receipt, "cached"
                done.append(node)
        return done

    def receipt(
        self, node: Node, report: Computed, reads: Mapping[str, Any] | None = None
    ) -> Receipt:
        """Return the receipt of a computed node, with what it stands on."""
        assert node.key is not None
        return Receipt(
            key=node.key,
            stage=node.stage,
            coords=node.coords,
            kind=node.kind.name,
            version=node.kind.version,
            params=node.form,
            inputs=input_digests(node) or {},
            code=self._code(node, recorded_loads(reads)),
            run=self._journal.record.begun,
            **{**vars(report), "reads": reads},
        )

    def _reads(self, node: Node, report: Computed) -> Mapping[str, Any] | None:
        """Return what a result stands on, and warn of what it should not."""
        plan, seen = self._plan, report.reads
        same = self._nodes[node.key or ""] or [node]
        stages = list(dict.fromkeys(other.stage for other in same))
        modules = plan.codes.modules(node)
        if seen is None and not plan.reads.are_declared(stages):
            return {"observed": False} if modules else None
        observed = seen or Observed({})
        loads = self._loads(node, observed)
        if loads is not None:
            modules = (*plan.codes.modules(node, loads.whole), *loads.passed)
        # A fingerprint follows these, and the store is read by this package alone.
        apart = {*source_files(modules), str(Path(self._store.location).absolute())}
        if observed.stated or observed.beyond or observed.named:
            followed = plan.codes.files()
            asking = modules if plan.codes.of(node).asks else None
            observed = observed.with_others(followed, asking)
            apart |= {f for f, name in observed.stated.items() if followed.get(name)}
        reads = plan.reads.record(stages, observed, apart)
        if loads is not None:
            reads["loads"] = list(loads.whole)
        if modules and seen is None:
            reads["observed"] = False
        for warning in warnings(reads):
            if (node.stage, warning) not in self._told:
                self._told.add((node.stage, warning))
                self._observer.warn(f"{node.stage}: {warning}")
        return reads

    def _loads(self, node: Node, observed: Observed) -> Loads | None:
        """Return what computed names have led to; None if it may be any module.

        What a shorter result has loaded that is resumed, nobody knows.
        """
        if observed.loads is None or node.shorter is not None:
            return None
        return self._plan.codes.loads_of(node, observed.loads)

    def _code(self, node: Node, loads: Sequence[str] | None) -> str:
        """Return the fingerprint of a node's code, recorded with its definitions."""
        codes = self._plan.codes
        fingerprint = codes.of(node, loads).fingerprint
        if fingerprint and fingerprint not in self._recorded:
            self._recorded.add(fingerprint)
            self._store.record_codes({fingerprint: codes.record(node, loads)})
        return fingerprint


def _passed_on(cause: Receipt) -> Computed:
    """Return the result of a node with a diverged input: diverged, not computed."""
    reason = cause.reason
    if not reason.startswith("input "):
        reason = f"input {cause.kind} diverged: {reason}"
    return Computed(
        digest=result_digest({}, "diverged", reason),
        parts={},
        status="diverged",
        reason=reason,
        payload=None,
        slot=0,
        seconds=0.0,
        width=1,
        device="cpu",
    )
