"""Strike off results that turn out to be lost, so that they are computed again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from curvflow.errors import StoreError
from curvflow.flows.lookup import compare
from curvflow.flows.observer import Observer
from curvflow.flows.plan import Plan, demand
from curvflow.flows.runners.base import LostInput
from curvflow.flows.tally import Tally
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
            keys = self._store.sharing(found.receipt)
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
