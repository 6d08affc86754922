"""Carry out a plan, stage by stage and tile by tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from curvflow.errors import StoreError
from curvflow.flows.compute import LostInputError, compute_tile, load
from curvflow.flows.files import SourceFiles
from curvflow.flows.graph import Node
from curvflow.flows.jobs import Computed, Failed, TileJob, tile_job
from curvflow.flows.lookup import compare, diverged_inputs, input_digests
from curvflow.flows.observer import Observer
from curvflow.flows.plan import Plan
from curvflow.flows.tiles import NODE_BY_NODE_WIDTH, cut, groups, width_for
from curvflow.schemas.options import RunOptions
from curvflow.schemas.receipts import Receipt, RunRecord, result_digest
from curvflow.stores.base import Store
from curvflow.tasks.registry import Machine, find


class Work:
    """The state of one run.

    Attributes:
        executed: nodes computed, per stage.
        failures: by action key the stage, coords, error and traceback.
    """

    def __init__(
        self,
        plan: Plan,
        run: RunRecord,
        *,
        store: Store,
        files: SourceFiles,
        options: RunOptions,
        observer: Observer,
    ) -> None:
        """Prepare to carry out a plan.

        Args:
            plan: what to do.
            run: the run's record, already begun.
            store: where results go.
            files: files that parameters name.
            options: how to compute.
            observer: who watches.
        """
        self._plan, self._run, self._store = plan, run, store
        self._files, self._options, self._observer = files, options, observer
        self._struck: set[str] = set()
        self.executed: dict[str, int] = dict.fromkeys(plan.graph.nodes, 0)
        self.failures: dict[str, dict[str, Any]] = {}

    def do(self, machine: Machine) -> None:
        """Compute everything that is not done and can be.

        Args:
            machine: where to compute.

        Raises:
            StoreError: results cannot be written, or not be read again and again.
        """
        graph = self._plan.graph
        lost = [n.key for n in graph if n.state == "stale" and n.receipt and n.key]
        if lost:
            self._strike(lost, "payload lost")
        while not self._swept(machine):
            pass

    def _swept(self, machine: Machine) -> bool:
        """Go through the stages; False if a result was lost on the way."""
        try:
            for nodes in self._plan.graph.nodes.values():
                self._stage(nodes, machine)
        except LostInputError as error:
            self._strike(self._store.sharing(error.receipt), str(error))
            return False
        return True

    def _strike(self, keys: Sequence[str], reason: str) -> None:
        """Strike results off the log, so that they are computed again."""
        if again := self._struck.intersection(keys):
            raise StoreError(f"{self._store.location}: {again.pop()[:12]}: {reason}")
        self._struck.update(keys)
        self._store.retire(keys, reason)
        self._observer.warn(
            f"{reason.rstrip('.')}; computing {len(keys)} results again"
        )
        index = self._store.index()
        for nodes in self._plan.graph.nodes.values():
            compare(nodes, index)

    def _stage(self, nodes: Sequence[Node], machine: Machine) -> None:
        if all(node.state == "cached" for node in nodes):
            return
        compare((n for n in nodes if n.state != "cached"), self._store.index())
        self._pass_on_divergence(nodes)
        for group in groups(nodes):
            stale = [node for node in group if node.state == "stale"]
            if stale:
                for tile in cut(group, self._width(stale[0])):
                    self._tile(tile, group, machine)
        self._tell(nodes[0].stage)

    def _width(self, node: Node) -> int:
        if not node.kind.vectorised:
            return NODE_BY_NODE_WIDTH
        (member,) = load(self._store, node.kind, self._job([node]).members)
        try:
            node_bytes = find(node.kind.name).member_bytes(member)
        # A model of the user's own may raise here; its tile will, and tell of it.
        except Exception:
            return NODE_BY_NODE_WIDTH
        return width_for(node_bytes, self._options.tile_bytes)

    def _job(self, nodes: Sequence[Node]) -> TileJob:
        files = {id(node.form): self._files.read(node.params) for node in nodes}
        return tile_job(self._plan.graph, nodes, files)

    def _tile(
        self, tile: Sequence[Node], group: Sequence[Node], machine: Machine
    ) -> None:
        stage = tile[0].stage
        self._observer.tile_begins(stage)
        keys = [node.key for node in tile]
        self._store.note(self._run, {"event": "begins", "stage": stage, "keys": keys})
        reports = compute_tile(self._store, self._job(tile), machine)
        done = [
            self._receipt(node, report)
            for node, report in zip(tile, reports, strict=True)
            if isinstance(report, Computed)
        ]
        self._publish(stage, done, group)
        for node, report in zip(tile, reports, strict=True):
            if isinstance(report, Failed):
                self._fail(node, report)
        self._tell(stage)

    def _tell(self, stage: str) -> None:
        failed = sum(failure["stage"] == stage for failure in self.failures.values())
        done = self._plan.counts(stage)["cached"]
        self._observer.stage_at(stage, done=done, failed=failed)

    def _publish(
        self, stage: str, receipts: Sequence[Receipt], group: Sequence[Node]
    ) -> None:
        if not receipts:
            return
        live = {receipt.key: receipt for receipt in self._store.commit(receipts)}
        keys = list(live)
        self._store.note(
            self._run, {"event": "committed", "stage": stage, "keys": keys}
        )
        self.executed[stage] += len(receipts)
        for node in group:
            if node.key in live:
                node.receipt, node.state = live[node.key], "cached"

    def _receipt(self, node: Node, report: Computed) -> Receipt:
        assert node.key is not None
        return Receipt(
            key=node.key,
            stage=node.stage,
            coords=self._plan.graph.coords(node),
            kind=node.kind.name,
            version=node.kind.version,
            params=node.form,
            inputs=input_digests(node) or {},
            **vars(report),
        )

    def _fail(self, node: Node, report: Failed) -> None:
        assert node.key is not None
        failure = {
            "key": node.key,
            "stage": node.stage,
            "coords": self._plan.graph.coords(node),
            "error": report.error,
            "traceback": report.traceback,
        }
        self.failures[node.key] = failure
        self._store.note(self._run, {"event": "failed", **failure})

    def _pass_on_divergence(self, nodes: Sequence[Node]) -> None:
        """Record what stands on diverged results as diverged; nothing is computed."""
        found = []
        for node in nodes:
            if node.state == "stale" and (diverged := diverged_inputs(node)):
                receipt = diverged[0].node.receipt
                assert receipt is not None
                found.append(self._receipt(node, _diverged(receipt)))
        if found:
            self._publish(nodes[0].stage, found, nodes)


def _diverged(cause: Receipt) -> Computed:
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
