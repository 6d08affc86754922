"""Recompute lost results, and check what was recomputed.

The last bits may depend on who else was computed in the same call, so a result that
differs is tried once more in its old company.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from curvflow.errors import StoreError
from curvflow.flows.graph.graph import Graph, Node
from curvflow.flows.graph.jobs import Computed, Failed
from curvflow.flows.graph.lookup import compare
from curvflow.flows.plan.plan import Plan, demand
from curvflow.flows.run.observer import Observer, Tally
from curvflow.flows.run.runners.base import LostInput
from curvflow.stores.base import Store


class Healing:
    """Keeps a plan true to what the store really holds."""

    def __init__(
        self, plan: Plan, store: Store, tally: Tally, observer: Observer
    ) -> None:
        """Prepare to heal.

        Args:
            plan: to be kept true.
            store: what it was compared with.
            tally: counts what is done.
            observer: told of what is struck off.
        """
        self._plan, self._store = plan, store
        self._tally, self._observer = tally, observer
        self._struck: set[str] = set()

    def strike_lost(self) -> None:
        """Strike off results whose payloads were found to be lost while planning."""
        lost: dict[str | None, list[str]] = defaultdict(list)
        for node in self._plan.graph:
            if node.state == "stale" and node.receipt is not None and not node.revive:
                lost[node.receipt.payload].append(node.receipt.key)
        if lost:
            self._strike(lost, "payload lost")

    def lost(self, found: LostInput) -> None:
        """Have a result that could not be read computed again.

        Args:
            found: the result and what is wrong with it.

        Raises:
            StoreError: it was computed again already, and cannot be read either.
        """
        payload = found.receipt.payload
        if payload is None or payload not in self._store.index().evicted:
            keys = self._store.payload_keys(found.receipt)
            return self._strike({payload: keys}, found.reason)
        is_new = payload not in self._plan.removed
        self._plan.removed.add(payload)
        demand(self._plan.graph, self._plan.removed)
        self._tally.recount()
        # It is computed again by this run, or by the one that has claimed it.
        if not is_new and not any(
            node.state == "stale" and node.receipt and node.receipt.payload == payload
            for node in self._plan.graph
        ):
            raise StoreError(f"{self._store.location}: {found.reason}")
        return None

    def compare_all(self) -> None:
        """Compare all nodes with the log again."""
        index = self._store.index()
        for nodes in self._plan.graph.nodes.values():
            compare(nodes, index)
        demand(self._plan.graph, self._plan.removed)
        self._tally.recount()

    def _strike(self, lost: Mapping[str | None, Sequence[str]], reason: str) -> None:
        """Strike results off the log, payload by payload, to compute them again."""
        keys = {key for some in lost.values() for key in some}
        if again := self._struck & keys:
            raise StoreError(f"{self._store.location}: {again.pop()[:12]}: {reason}")
        self._struck |= keys
        for payload, some in lost.items():
            self._store.retire(list(dict.fromkeys(some)), reason, payload=payload)
        self._observer.warn(
            f"{reason.rstrip('.')}; computing {len(keys)} results again"
        )
        self.compare_all()


Report = Computed | Failed


def old_company(
    graph: Graph, tile: Sequence[Node], reports: Sequence[Report]
) -> list[Node]:
    """Return the nodes to be computed together, for a result came out different.

    Args:
        graph: all nodes.
        tile: what was computed.
        reports: what became of it.

    Returns:
        All nodes of the payloads that were removed, if they are more than the tile;
        else none.
    """
    if not any(map(_differs, tile, reports)):
        return []
    wanted = {node.receipt.payload for node in tile if node.receipt}
    together = {
        node.key: node
        for node in graph.nodes[tile[0].stage]
        if node.receipt is not None and node.receipt.payload in wanted
    }
    return list(together.values()) if len(together) > len(tile) else []


def retire_changed(
    store: Store, observer: Observer, tile: Sequence[Node], reports: Sequence[Report]
) -> bool:
    """Strike off what results were that did not come out the same again.

    Args:
        store: whose log says what they were.
        observer: told of them.
        tile: what was computed.
        reports: what became of it.

    Returns:
        Whether there are any.
    """
    found = defaultdict(list)
    for node, report in zip(tile, reports, strict=True):
        if node.receipt is not None and node.key and _differs(node, report):
            found[node.receipt.payload].append(node.key)
    reason = "computed again after collection, it came out different"
    for payload, keys in found.items():
        store.retire(keys, reason, payload=payload)
        observer.warn(f"{reason}: {len(keys)} results of {tile[0].stage}")
    return bool(found)


def _differs(node: Node, report: Report) -> bool:
    """Whether a result that was removed is not the same again."""
    earlier = node.receipt
    return (
        earlier is not None
        and isinstance(report, Computed)
        and earlier.digest != report.digest
    )
