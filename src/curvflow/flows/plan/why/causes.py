"""Causes for nodes to run: the differences from the nearest earlier result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from curvflow.flows.graph.graph import Graph, Node, Taken, taken_parts
from curvflow.flows.plan.why.nearest import (
    Change,
    NearestResults,
    input_changes,
    own_changes,
)
from curvflow.schemas.keys import sha256
from curvflow.schemas.nodes import Label
from curvflow.schemas.records.receipts import Receipt
from curvflow.stores.base import Index

Changes = tuple[Change, ...]


class Causes:
    """Compares nodes with earlier results, nearest first.

    Attributes:
        results: the earlier results, by nearness.
    """

    def __init__(self, graph: Graph, index: Index) -> None:
        self._graph, self._index = graph, index
        self.results = NearestResults(index, graph.study.name)
        self._known: dict[int, tuple[object, Changes]] = {}
        # A failure counts until the next run of the node, whatever became of that.
        self._failed = {
            failure.get("key"): (run.number, failure)
            for run in index.runs
            for failure in run.failures
        }

    def of(self, node: Node) -> list[str]:
        """List the reasons why a node is not done; empty if it is."""
        if node.state == "waiting":
            return [f"waits for {name}" for name in _awaited(node)]
        return [str(change) for change in self.changes(node)]

    def changes(self, node: Node) -> Changes:
        """Return the changes of a node itself; none if it is done, or only waits."""
        if node.state == "cached":
            return ()
        state = node.state, node.key
        known = self._known.get(id(node))
        if known is None or known[0] != state:
            known = self._known[id(node)] = state, self._changes(node)
        return known[1]

    def _changes(self, node: Node) -> Changes:
        if node.outdated:
            return tuple(
                Change(moved.what, str(moved), moved.name, moved.old, moved.new)
                for moved in node.outdated
            )
        if node.receipt is not None:
            return (self._gone(node.receipt),)
        if node.state == "stale" and (failed := self._failed.get(node.key)):
            run, failure = failed
            text = f"failed in run {run}: {' '.join(str(failure['error']).split())}"
            return (Change("failed", text, str(run)),)
        earlier = self.results.nearest_at(node)
        if earlier is None:
            return (Change("new", "new", self._new_labels(node)),)
        return (
            self.differences(node, earlier)
            if node.state == "stale"
            else tuple(own_changes(node, earlier))
        )

    def differences(self, node: Node, earlier: Receipt) -> Changes:
        """Return the differences between a node and an earlier result.

        If there are none, the earlier result was retired.
        """
        changes = own_changes(node, earlier) + input_changes(node, earlier)
        if changes or node.state == "waiting":
            return tuple(changes)
        reason = self._index.retired.get(node.key or "")
        text = "earlier result struck off" + (f": {reason}" if reason else "")
        return (Change("struck off", text),)

    def _gone(self, receipt: Receipt) -> Change:
        if receipt.payload in self._index.evicted:
            return Change("removed", "payload removed, and needed again")
        return Change("lost", "payload lost")

    def _new_labels(self, node: Node) -> str:
        """Name the dimensions at which a node's label was never seen."""
        seen = self.results.labels(node.stage)
        dims = [d for d, label in node.coords.items() if label not in seen.get(d, ())]
        return ", ".join(dims) if seen else ""

    def failures(self) -> list[Mapping[str, Any]]:
        """Return the failures of earlier runs that still stand."""
        standing = {node.key for node in self._graph if node.state == "stale"}
        failures = self._failed.items()
        return [failure for key, (_, failure) in failures if key in standing]

    def traceback(self, node: Node) -> str:
        """Return the traceback of a node that failed before; empty if it did not."""
        failed = self._failed.get(node.key)
        return str(failed[1]["traceback"]) if failed else ""

    def grouped(self, nodes: Sequence[Node]) -> list[dict[str, Any]]:
        """Group the causes of many nodes: `{"cause", "nodes"}`, most nodes first."""
        causes = Counter(cause for node in nodes for cause in self.of(node))
        return [{"cause": c, "nodes": n} for c, n in causes.most_common()]


def _awaited(node: Node) -> list[str]:
    missing = {
        taken.node.stage
        for several in node.inputs.values()
        for taken in several
        if taken.node.state != "cached"
    }
    return sorted(missing)


Member = tuple[str, frozenset[tuple[str, Label]]]


def replaced(
    node: Node, receipt: Receipt, name: str, earlier: NearestResults
) -> Iterator[tuple[Node, Receipt]]:
    """Yield inputs of a node, done by now, each with the receipt it had before.

    Of reductions only those that were taken before and have changed since.
    """
    before = receipt.inputs.get(name)
    many = isinstance(before, list | tuple)
    digests = {_member(*item[:2]): item[3] for item in before or ()} if many else {}
    for taken in node.inputs.get(name, ()):
        producer = taken.node
        old = digests.get(_member(producer.stage, producer.coords)) if many else before
        if producer.receipt is None or _digest(producer.receipt, taken) == old:
            continue
        of_old = (r for r in reversed(earlier.at(producer)) if _digest(r, taken) == old)
        if (receipt_before := next(of_old, None)) is not None:
            yield producer, receipt_before


def takes_others(node: Node, earlier: NearestResults) -> bool:
    """Return whether a reduction takes nodes that no earlier result of it took."""
    reduced = [name for name in node.inputs if node.kind.inputs[name].many]
    now = {
        name: {
            _member(result.node.stage, result.node.coords)
            for result in node.inputs[name]
        }
        for name in reduced
    }
    return bool(reduced) and not any(
        all(_before(receipt, name) == now[name] for name in reduced)
        for receipt in earlier.at(node)
    )


def _digest(receipt: Receipt, taken: Taken) -> str:
    return sha256(taken_parts(receipt, taken.parts))


def _member(stage: str, coords: Mapping[str, Label]) -> Member:
    return stage, frozenset(coords.items())


def _before(receipt: Receipt, name: str) -> set[Member]:
    entries: Any = receipt.inputs.get(name, ())
    return {_member(*entry[:2]) for entry in entries}
