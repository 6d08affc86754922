"""Publish what tiles have computed: receipts, journal, and nodes brought up to date."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from curvflow.flows.graph.graph import Node, diverged_inputs, input_digests
from curvflow.flows.graph.tiles import Computed, Failed
from curvflow.flows.run.context import Journal, RunContext
from curvflow.schemas.records.receipts import Receipt, result_digest


class Publisher:
    """Commits the results of one run, and marks their nodes as done."""

    def __init__(self, context: RunContext, journal: Journal) -> None:
        self._store, self._journal = context.store, journal
        self._plan, self._counts = context.plan, context.counts
        self._recorded: set[str] = set()  # fingerprints
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
                receipts.append(self.receipt(node, report))
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

    def receipt(self, node: Node, report: Computed) -> Receipt:
        """Return the receipt of a computed node."""
        assert node.key is not None
        return Receipt(
            key=node.key,
            stage=node.stage,
            coords=node.coords,
            kind=node.kind.name,
            version=node.kind.version,
            params=node.form,
            inputs=input_digests(node) or {},
            code=self._code(node),
            run=self._journal.record.begun,
            **vars(report),
        )

    def _code(self, node: Node) -> str:
        """Return the fingerprint of a node's code, recorded with its definitions."""
        codes = self._plan.codes
        fingerprint = codes.of(node).fingerprint
        if fingerprint and fingerprint not in self._recorded:
            self._recorded.add(fingerprint)
            self._store.record_codes({fingerprint: codes.record(node)})
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
