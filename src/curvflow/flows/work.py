"""Carry out a plan, stage by stage and tile by tile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from curvflow.errors import InputError, StoreError
from curvflow.flows.compute import LostInputError, compute_tile, failure, load
from curvflow.flows.files import SourceFiles
from curvflow.flows.graph import Node
from curvflow.flows.jobs import Computed, TileJob, tile_job
from curvflow.flows.lookup import compare, diverged_inputs, input_digests
from curvflow.flows.observer import Observer
from curvflow.flows.plan import Plan
from curvflow.flows.tally import Tally
from curvflow.flows.tiles import NODE_BY_NODE_WIDTH, cut, groups, width_for
from curvflow.schemas.options import RunOptions
from curvflow.schemas.receipts import Receipt, RunRecord, result_digest
from curvflow.stores.base import Store
from curvflow.tasks.registry import Machine, find


class Work:
    """One run of a plan.

    Attributes:
        tally: what has been done so far.
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
        self.tally = Tally(plan.graph)

    def do(self, machine: Machine) -> None:
        """Compute everything that is not done and can be.

        Args:
            machine: where to compute.

        Raises:
            StoreError: results cannot be written, or not be read again and again.
        """
        graph = self._plan.graph
        lost: dict[str | None, list[str]] = defaultdict(list)
        for node in graph:
            if node.state == "stale" and node.receipt is not None:
                lost[node.receipt.payload].append(node.receipt.key)
        for payload, keys in lost.items():
            self._strike(list(dict.fromkeys(keys)), payload, "payload lost")
        while not self._swept(machine):
            pass

    def _swept(self, machine: Machine) -> bool:
        """Go through the stages; False if a result was lost on the way."""
        try:
            for nodes in self._plan.graph.nodes.values():
                self._stage(nodes, machine)
        except LostInputError as error:
            keys = self._store.sharing(error.receipt)
            self._strike(keys, error.receipt.payload, str(error))
            return False
        return True

    def _strike(self, keys: Sequence[str], payload: str | None, reason: str) -> None:
        """Strike results off the log, so that they are computed again."""
        if again := self._struck.intersection(keys):
            raise StoreError(f"{self._store.location}: {again.pop()[:12]}: {reason}")
        self._struck.update(keys)
        self._store.retire(keys, reason, payload=payload)
        self._observer.warn(
            f"{reason.rstrip('.')}; computing {len(keys)} results again"
        )
        index = self._store.index()
        for nodes in self._plan.graph.nodes.values():
            compare(nodes, index)
        self.tally.recount()

    def _stage(self, nodes: Sequence[Node], machine: Machine) -> None:
        if not nodes or all(node.state == "cached" for node in nodes):
            return
        open_nodes = [node for node in nodes if node.state != "cached"]
        compare(open_nodes, self._store.index())
        self.tally.done[nodes[0].stage] += sum(n.state == "cached" for n in open_nodes)
        self._pass_on_divergence(nodes)
        for group in groups(nodes):
            stale = [node for node in group if node.state == "stale"]
            if stale:
                twins = by_key(stale)
                width = self._width(stale[0])
                for tile in cut(group, width, without=self.tally.failures):
                    self._tile(tile, twins, machine)
        self._tell(nodes[0].stage)

    def _width(self, node: Node) -> int:
        if not node.kind.vectorised:
            return NODE_BY_NODE_WIDTH
        try:
            (member,) = load(self._store, node.kind, self._job([node]).members)
            node_bytes = find(node.kind.name).member_bytes(member)
        except StoreError:
            raise
        # A model of the user's own may raise here; its tile will, and tell of it.
        except Exception:
            return NODE_BY_NODE_WIDTH
        return width_for(node_bytes, self._options.tile_bytes)

    def _job(self, nodes: Sequence[Node]) -> TileJob:
        # Nodes with equal parameters share one form, and so one reading of the files.
        first = {id(node.form): node for node in nodes}
        files = {
            form: self._files.read(node.params, node.form)
            for form, node in first.items()
        }
        return tile_job(self._plan.graph, nodes, files)

    def _tile(
        self, tile: Sequence[Node], twins: Mapping[str, list[Node]], machine: Machine
    ) -> None:
        stage = tile[0].stage
        self._observer.tile_begins(stage)
        self._note("begins", stage, [node.key for node in tile])
        try:
            reports = compute_tile(self._store, self._job(tile), machine)
        except InputError as error:  # a file is not what it was planned to be
            reports = [failure(error) for _ in tile]
        done = []
        for node, report in zip(tile, reports, strict=True):
            if isinstance(report, Computed):
                done.append(self._receipt(node, report))
            elif node.key is not None:
                self.tally.failures[node.key] = report
                self._note("failed", stage, [node.key])
        self._publish(stage, done, twins)
        self._tell(stage)

    def _note(self, event: str, stage: str, keys: Sequence[str | None]) -> None:
        self._store.note(self._run, {"event": event, "stage": stage, "keys": keys})

    def _tell(self, stage: str) -> None:
        failed = self.tally.failed(stage) if self.tally.failures else 0
        self._observer.stage_at(stage, done=self.tally.done[stage], failed=failed)

    def _publish(
        self,
        stage: str,
        receipts: Sequence[Receipt],
        twins: Mapping[str, list[Node]],
    ) -> None:
        if not receipts:
            return
        live = self._store.commit(receipts)
        self._note("committed", stage, [receipt.key for receipt in live])
        self.tally.executed[stage] += len(live)
        for receipt in live:
            for node in twins[receipt.key]:
                node.receipt, node.state = receipt, "cached"
                self.tally.done[stage] += 1

    def _receipt(self, node: Node, report: Computed) -> Receipt:
        assert node.key is not None
        return Receipt(
            key=node.key,
            stage=node.stage,
            coords=node.coords,
            kind=node.kind.name,
            version=node.kind.version,
            params=node.form,
            inputs=input_digests(node) or {},
            **vars(report),
        )

    def _pass_on_divergence(self, nodes: Sequence[Node]) -> None:
        """Record what stands on diverged results as diverged; nothing is computed."""
        found = []
        for node in nodes:
            if node.state == "stale" and (diverged := diverged_inputs(node)):
                receipt = diverged[0].node.receipt
                assert receipt is not None
                found.append(self._receipt(node, _diverged(receipt)))
        if found:
            unique = list({receipt.key: receipt for receipt in found}.values())
            stale = [node for node in nodes if node.state == "stale"]
            self._publish(nodes[0].stage, unique, by_key(stale))


def by_key(nodes: Sequence[Node]) -> dict[str, list[Node]]:
    """Group nodes by action key; equal parameters make several nodes one result."""
    found: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        found[node.key or ""].append(node)
    return found


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
