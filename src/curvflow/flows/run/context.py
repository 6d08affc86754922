"""The context of one run, which all of its parts share; its journal and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from curvflow.flows.graph.graph import Graph, Node
from curvflow.flows.graph.heartbeats import Stopping
from curvflow.flows.graph.open_study import SourceFiles
from curvflow.flows.graph.tiles import Failed
from curvflow.flows.plan.plan import Plan
from curvflow.flows.plan.why.cost import Costs
from curvflow.flows.run.observer import Observer
from curvflow.schemas.options import RunOptions
from curvflow.schemas.records.receipts import RunRecord
from curvflow.stores.base import Store


@dataclass(frozen=True)
class RunContext:
    """The objects that every part of one run works with.

    Attributes:
        plan: the nodes, and the code that computes them.
        store: holds results, claims and the journal.
        files: files that parameters name.
        options: how to compute.
        observer: shows progress.
        stop: set when the run is asked to end.
        counts: of what has been done so far.
        costs: predicted times of nodes.
    """

    plan: Plan
    store: Store
    files: SourceFiles
    options: RunOptions
    observer: Observer
    stop: Stopping
    counts: Counts
    costs: Costs

    def show(self, stages: Iterable[str]) -> None:
        """Pass the counts of stages on to the observer."""
        for stage in stages:
            done, failed = self.counts.done[stage], self.counts.failed(stage)
            self.observer.stage_at(stage, done=done, failed=failed)

    def tell(self, lines: Iterable[str]) -> None:
        """Pass lines on to the observer."""
        for line in lines:
            self.observer.tell(line)


@dataclass(frozen=True)
class Journal:
    """The journal of one run.

    Attributes:
        store: keeps it.
        record: of the run, begun.
    """

    store: Store
    record: RunRecord

    def note(self, event: str, stage: str, keys: Sequence[str | None]) -> None:
        """Note what happened to the nodes of some keys."""
        self._append({"event": event, "stage": stage, "keys": keys})

    def rely_on(self, nodes: Iterable[Node]) -> None:
        """Note payloads that the run relies on, for collection to leave alone."""
        receipts = (node.receipt for node in nodes)
        payloads = {receipt.payload for receipt in receipts if receipt}
        named = sorted(name for name in payloads if name)
        self._append({"event": "plan", "payloads": named})

    def _append(self, event: Mapping[str, Any]) -> None:
        self.store.append_event(self.record, event)


class Counts:
    """Counts of one run.

    Attributes:
        executed: nodes computed, per stage.
        revived: results among them that collection had removed, the same again.
        done: nodes with a result, per stage.
        failures: error and traceback by action key.
    """

    def __init__(self, graph: Graph) -> None:
        """Count what is done already."""
        self._graph = graph
        self.executed: Counter[str] = Counter()
        self.revived: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.failures: dict[str, Failed] = {}
        self._failed: Counter[str] = Counter()
        self.recount()

    def recount(self) -> None:
        """Count again what is done, and what has failed."""
        nodes = (node for node in self._graph if node.state == "cached")
        self.done = Counter(node.stage for node in nodes)
        nodes = (node for node in self._graph if self._has_failed(node))
        self._failed = Counter(node.stage for node in nodes)

    def fail(self, nodes: Iterable[Node], report: Failed) -> None:
        """Count nodes of one key as failed."""
        for node in nodes:
            assert node.key is not None
            self.failures[node.key] = report
            self._failed[node.stage] += self._has_failed(node)

    def failed(self, stage: str) -> int:
        """Return the number of failed nodes of a stage."""
        return self._failed[stage]

    def _has_failed(self, node: Node) -> bool:
        return node.state == "stale" and node.key in self.failures

    def failure_records(self) -> list[dict[str, Any]]:
        """Return key, stage, coords, error and traceback of each failed node."""
        if not self.failures:
            return []
        return [
            {
                "key": node.key,
                "stage": node.stage,
                "coords": node.coords,
                **vars(self.failures[node.key]),
            }
            for node in self._graph
            if node.key is not None and self._has_failed(node)
        ]

    def revived_in(self, stages: Iterable[str]) -> dict[str, int]:
        """Return the revived results per stage; 0 where the stage lacked none."""
        nodes = self._graph.nodes
        unneeded = [name for name in stages if not any(n.revive for n in nodes[name])]
        return dict.fromkeys(unneeded, 0) | +self.revived

    def by_outcome(self) -> dict[str, dict[str, int]]:
        """Return per stage the numbers of executed, cached, failed, diverged nodes."""
        failed = Counter(record["stage"] for record in self.failure_records())
        done, diverged = Counter[str](), Counter[str]()
        for node in self._graph:
            is_diverged = node.receipt is not None and node.receipt.status == "diverged"
            done[node.stage] += node.state == "cached"
            diverged[node.stage] += is_diverged
        stages = list(self._graph.nodes)
        return {
            "executed": {stage: self.executed[stage] for stage in stages},
            "cached": {stage: done[stage] - self.executed[stage] for stage in stages},
            "failed": {stage: failed[stage] for stage in stages},
            "diverged": {stage: diverged[stage] for stage in stages},
        }
