"""Why nodes must run: what differs from the nearest earlier result."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from curvflow.flows.graph import Graph, Node
from curvflow.flows.lookup import input_digests
from curvflow.schemas.nodes import Label
from curvflow.schemas.receipts import Receipt
from curvflow.stores.base import Index

Address = tuple[str, frozenset[tuple[str, Label]]]


class Causes:
    """Compares nodes with earlier results, nearest first."""

    def __init__(self, graph: Graph, index: Index) -> None:
        """Prepare for questions; earlier results are sorted at the first one.

        Args:
            graph: the nodes.
            index: what the log says.
        """
        self._graph, self._index = graph, index
        self._by_address: dict[Address, list[Receipt]] | None = None
        # A failure counts until the next run of the node, whatever became of that.
        self._failed = {
            failure.get("key"): (run.number, failure)
            for run in index.runs
            for failure in run.failures
        }

    def of(self, node: Node) -> list[str]:
        """List why one node is not done; empty if it is."""
        if node.state == "cached":
            return []
        if node.receipt is not None:
            return ["payload lost"]
        if node.state == "waiting":
            return [f"waits for {name}" for name in _awaited(node)]
        if failed := self._failed.get(node.key):
            run, failure = failed
            return [f"failed in run {run}: {' '.join(str(failure['error']).split())}"]
        earlier = self._same_address(node)
        return differences(node, earlier) if earlier else ["new"]

    def failures(self) -> list[Mapping[str, Any]]:
        """Return the failures of earlier runs that still stand."""
        standing = {node.key for node in self._graph if node.state == "stale"}
        found = self._failed.items()
        return [failure for key, (_, failure) in found if key in standing]

    def traceback(self, node: Node) -> str:
        """Return the traceback of a node that failed before; empty if it did not."""
        failed = self._failed.get(node.key)
        return str(failed[1]["traceback"]) if failed else ""

    def grouped(self, nodes: Sequence[Node]) -> list[dict[str, Any]]:
        """Group the causes of many nodes: `{"cause", "nodes"}`, most nodes first."""
        found = Counter(cause for node in nodes for cause in self.of(node))
        return [{"cause": c, "nodes": n} for c, n in found.most_common()]

    def nearest(self, node: Node) -> Receipt | None:
        """Return the earlier result nearest to a node, None if there is none.

        Of the same stage and coordinates if possible, else of the same kind; of those
        the one with the fewest differing parameters and inputs, the latest of equals.
        """
        if earlier := self._same_address(node):
            return earlier
        rows = self._index.rows.values()
        return _nearest(node, [r for r in rows if r.kind == node.kind.name])

    def _same_address(self, node: Node) -> Receipt | None:
        if self._by_address is None:
            self._by_address = defaultdict(list)
            for receipt in self._index.rows.values():
                address = receipt.stage, frozenset(receipt.coords.items())
                self._by_address[address].append(receipt)
        coords = node.coords
        earlier = self._by_address.get((node.stage, frozenset(coords.items())), [])
        return _nearest(node, earlier)


def _nearest(node: Node, earlier: Sequence[Receipt]) -> Receipt | None:
    def distance(receipt: Receipt) -> tuple[bool, int]:
        return receipt.kind != node.kind.name, len(differences(node, receipt))

    return min(reversed(earlier), key=distance, default=None)


def _awaited(node: Node) -> list[str]:
    missing = {
        taken.node.stage
        for several in node.inputs.values()
        for taken in several
        if taken.node.state != "cached"
    }
    return sorted(missing)


def differences(node: Node, earlier: Receipt) -> list[str]:
    """List what differs between a node and an earlier result, old value -> new value.

    Args:
        node: with its inputs known.
        earlier: a receipt of the same kind.

    Returns:
        `version 1 -> 2`, `parameter lr: 0.1 -> 0.2`, `input data changed`; if nothing
        differs the earlier result was struck off the log.
    """
    found = []
    if node.kind.name != earlier.kind:
        found.append(f"kind {earlier.kind} -> {node.kind.name}")
    elif node.kind.version != earlier.version:
        found.append(f"version {earlier.version} -> {node.kind.version}")
    found += [
        f"parameter {path}: {old} -> {new}"
        for path, old, new in _changed(earlier.params, node.form)
    ]
    found += [f"input {name} changed" for name in _changed_inputs(node, earlier)]
    return found or ["earlier result struck off"]


def _changed_inputs(node: Node, earlier: Receipt) -> list[str]:
    digests = input_digests(node)
    if digests is None:  # a node that waits may yet find its inputs unchanged
        return []
    names = digests.keys() | earlier.inputs.keys()
    return sorted(n for n in names if digests.get(n) != earlier.inputs.get(n))


_ABSENT = object()


def _changed(
    old: object, new: object, path: str = ""
) -> Iterator[tuple[str, str, str]]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted(old.keys() | new.keys()):
            inner = f"{path}.{key}" if path else key
            yield from _changed(old.get(key, _ABSENT), new.get(key, _ABSENT), inner)
    elif type(old) is not type(new) or old != new:
        yield path, _shown(old), _shown(new)


def _shown(value: object) -> str:
    return "nothing" if value is _ABSENT else repr(value)
