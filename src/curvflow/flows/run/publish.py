"""Publish what tiles have computed: receipts, journal, and nodes brought up to date."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from curvflow.flows.graph.graph import Node
from curvflow.flows.graph.jobs import Computed
from curvflow.flows.graph.lookup import diverged_inputs, input_digests
from curvflow.flows.plan.code.fingerprints import Fingerprints
from curvflow.flows.run.observer import Tally
from curvflow.schemas.records.receipts import Receipt, RunRecord, result_digest
from curvflow.stores.base import Store

Twins = Mapping[str, list[Node]]


class Publisher:
    """Commits the results of one run."""

    def __init__(
        self, store: Store, run: RunRecord, *, tally: Tally, codes: Fingerprints
    ) -> None:
        """Bind a run to its store.

        Args:
            store: where results go.
            run: the run's record, already begun.
            tally: counts what is done.
            codes: the code that computes nodes.
        """
        self._store, self._run, self._tally = store, run, tally
        self._codes, self._recorded = codes, set[str]()
        self._executed: set[str] = set()

    def publish(
        self, stage: str, receipts: Sequence[Receipt], twins: Twins
    ) -> list[Node]:
        """Commit receipts, and mark their nodes as done.

        Args:
            stage: of all of them.
            receipts: of nodes whose payloads have been written.
            twins: nodes by key; equal parameters make several nodes one result.

        Returns:
            The nodes that are done by this.
        """
        if not receipts:
            return []
        live = self._store.commit(receipts)
        self.note("committed", stage, [receipt.key for receipt in live])
        for one in live:
            if one.key not in self._executed:  # what others' company needed is repeated
                self._executed.add(one.key)
                before = twins[one.key][0].receipt
                self._tally.executed[stage] += 1
                same = before is not None and before.digest == one.digest
                self._tally.revived[stage] += same
        return self.adopt(live, twins)

    def pass_on(self, nodes: Iterable[Node], twins: Twins) -> list[Node]:
        """Record what stands on diverged results as diverged; nothing is computed.

        Args:
            nodes: all of whose inputs are there.
            twins: nodes by key.

        Returns:
            The nodes that are done by this.
        """
        found: dict[str, dict[str, Receipt]] = defaultdict(dict)
        for node in nodes:
            if node.state == "stale" and (diverged := diverged_inputs(node)):
                cause = diverged[0].node.receipt
                assert cause is not None
                receipt = self.receipt(node, passed_on(cause))
                found[node.stage].setdefault(receipt.key, receipt)
        return [
            node
            for stage, receipts in found.items()
            for node in self.publish(stage, list(receipts.values()), twins)
        ]

    def adopt(self, live: Iterable[Receipt], twins: Twins) -> list[Node]:
        """Mark the nodes of live receipts as done, whoever computed them."""
        done = []
        for receipt in live:
            for node in twins[receipt.key]:
                self._tally.done[node.stage] += node.state != "cached"
                node.receipt, node.state = receipt, "cached"
                done.append(node)
        return done

    def receipt(self, node: Node, report: Computed) -> Receipt:
        """Return the receipt of what was computed for a node."""
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
            run=self._run.begun,
            **vars(report),
        )

    def _code(self, node: Node) -> str:
        """Return the fingerprint of a node's code, having said what it stands for."""
        code = self._codes.of(node)
        if code.fingerprint and code.fingerprint not in self._recorded:
            self._recorded.add(code.fingerprint)
            self._store.record_codes({code.fingerprint: self._codes.record(node)})
        return code.fingerprint

    def rely_on(self, nodes: Sequence[Node]) -> None:
        """Write down payloads that the plan did not name, for collection to leave."""
        names = {node.receipt.payload for node in nodes if node.receipt}
        if payloads := sorted(name for name in names if name):
            self._store.append_event(self._run, {"event": "plan", "payloads": payloads})

    def note(self, event: str, stage: str, keys: Sequence[str | None]) -> None:
        """Write a line in the run's journal."""
        self._store.append_event(
            self._run, {"event": event, "stage": stage, "keys": keys}
        )


def passed_on(cause: Receipt) -> Computed:
    """Return the result of what stands on a diverged result: diverged, uncomputed."""
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
