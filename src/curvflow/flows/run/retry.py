"""Retry of tiles: of dead workers, of lost results, and to compare what differs.

The last bits may depend on the nodes that were computed in the same call, so a result
that differs is computed once more in a tile of the original nodes. After the death of a
worker its whole tile is tried once more, then its halves, until a node whose process
always dies is alone and fails by name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from curvflow.errors import StoreError
from curvflow.flows.graph.graph import Node, compare
from curvflow.flows.graph.tiles import Computed, Failed
from curvflow.flows.plan.plan import mark_removed_inputs
from curvflow.flows.run.context import RunContext
from curvflow.flows.run.runners.base import LostInput

Report = Computed | Failed


class Repair:
    """Keeps a plan true to what the store really holds.

    Attributes:
        is_due: results turned out to be lost or changed; nothing is sent until the
            plan is brought up to date.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._plan, self._store = context.plan, context.store
        self._struck: set[str] = set()  # action keys and payloads
        self._lost: dict[str, str] = {}  # payloads, and what is wrong with each
        self._repeated: set[str | None] = set()  # payloads
        self._has_changed = False

    @property
    def is_due(self) -> bool:
        """Return whether the plan is out of date."""
        return bool(self._lost) or self._has_changed

    def retire_lost(self) -> None:
        """Retire results whose payloads planning has seen to be lost."""
        lost: dict[str | None, list[str]] = defaultdict(list)
        for node in self._plan.graph:
            if node.state == "stale" and node.receipt is not None and not node.revive:
                lost[node.receipt.payload].append(node.receipt.key)
        if lost:
            self._retire(lost, "payload lost")

    def retire_outdated(self, nodes: Iterable[Node]) -> None:
        """Retire results that stand on files or variables of another content by now."""
        causes: dict[tuple[str, str | None], set[str]] = defaultdict(set)
        for node in nodes:
            if node.replaced is not None:
                text = "; ".join(map(str, node.outdated))
                causes[text, node.replaced.payload].add(node.replaced.key)
        for (text, payload), keys in causes.items():
            self._store.retire(sorted(keys), text, payload=payload)

    def lost(self, loss: LostInput) -> None:
        """Note results that a tile could not read."""
        self._lost = {**loss.payloads, **self._lost}

    def apply(self) -> None:
        """Bring the plan up to date with what was lost and what has changed.

        Raises:
            StoreError: a result was computed again already, and is lost once more.
        """
        if self._lost:
            self._recompute(self._lost)
        if self._has_changed:
            self._compare_all()
        self._lost.clear()
        self._repeated.clear()
        self._has_changed = False

    def _recompute(self, lost: Mapping[str, str]) -> None:
        index = self._store.index()
        removed = lost.keys() & index.evicted
        if removed:
            self._restore({payload: lost[payload] for payload in removed})
        if struck := {p: reason for p, reason in lost.items() if p not in removed}:
            keys = self._store.strike_off(struck, upto=index.number)
            self._recompute_struck(keys, next(iter(struck.values())), payloads=struck)

    def _restore(self, removed: Mapping[str, str]) -> None:
        """Compute again what collection has removed from under this run."""
        is_new = removed.keys() - self._plan.removed
        self._plan.removed |= removed.keys()
        mark_removed_inputs(self._plan)
        self._context.counts.recount()
        # It is computed again by this run, or by the one that has claimed it.
        stale = {
            node.receipt.payload
            for node in self._plan.graph
            if node.state == "stale" and node.receipt
        }
        for payload in removed.keys() - is_new - stale:
            raise StoreError(f"{self._store.location}: {removed[payload]}")

    def _retire(self, lost: Mapping[str | None, Sequence[str]], reason: str) -> None:
        """Retire results from the log, payload by payload, to compute them again."""
        for payload, keys in lost.items():
            self._store.retire(list(dict.fromkeys(keys)), reason, payload=payload)
        several = [key for keys in lost.values() for key in keys]
        self._recompute_struck(several, reason, payloads=lost)

    def _recompute_struck(
        self, keys: Sequence[str], reason: str, *, payloads: Iterable[str | None]
    ) -> None:
        """Report results that were struck off, and bring the plan up to date.

        Raises:
            StoreError: they were struck off by this run before.
        """
        struck: set[str] = {*keys, *filter(None, payloads)}
        if again := self._struck & struck:
            raise StoreError(f"{self._store.location}: {again.pop()[:12]}: {reason}")
        self._struck |= struck
        self._context.observer.warn(
            f"{reason.rstrip('.')}; computing {len(set(keys))} results again"
        )
        self._compare_all()

    def _compare_all(self) -> None:
        """Compare all nodes with the log again."""
        index = self._store.index()
        for nodes in self._plan.graph.nodes.values():
            compare(nodes, index)
        mark_removed_inputs(self._plan)
        self._context.counts.recount()

    def original_tile(
        self, tile: Sequence[Node], reports: Sequence[Report]
    ) -> list[Node]:
        """Return the original tile's nodes when a recomputed digest differs.

        Empty if they are no more than the tile.
        """
        if not any(map(_differs, tile, reports)):
            return []
        payloads = {node.receipt.payload for node in tile if node.receipt}
        original = {
            node.key: node
            for node in self._plan.graph.nodes[tile[0].stage]
            if node.receipt is not None and node.receipt.payload in payloads
        }
        return list(original.values()) if len(original) > len(tile) else []

    def is_first(self, original: Sequence[Node]) -> bool:
        """Return whether an original tile was not repeated yet, and note it."""
        payloads = {node.receipt.payload for node in original if node.receipt}
        is_first = not payloads <= self._repeated
        self._repeated |= payloads
        return is_first

    def compare(self, tile: Sequence[Node], reports: Sequence[Report]) -> None:
        """Retire results that were recomputed and came out different."""
        changed = defaultdict(list)
        for node, report in zip(tile, reports, strict=True):
            if node.receipt is not None and node.key and _differs(node, report):
                changed[node.receipt.payload].append(node.key)
        reason = "computed again after collection, it came out different"
        for payload, keys in changed.items():
            self._store.retire(keys, reason, payload=payload)
            self._context.observer.warn(
                f"{reason}: {len(keys)} results of {tile[0].stage}"
            )
        self._has_changed = self._has_changed or bool(changed)


def _differs(node: Node, report: Report) -> bool:
    """Return whether a result that was removed is not the same again."""
    return (
        node.receipt is not None
        and isinstance(report, Computed)
        and node.receipt.digest != report.digest
    )


# Times that a tile's worker may take the run for gone: it was asleep, say.
MOST_INTERRUPTIONS = 20


@dataclass(frozen=True)
class TileInFlight:
    """A tile that was sent to the runner.

    Attributes:
        nodes: of the tile.
        deaths: times a process died over it, or over the larger one it is part of.
        is_repeat: it repeats a tile as it was once computed, to compare the results.
        interruptions: times its worker took the run for gone.
    """

    nodes: Sequence[Node]
    deaths: int = 0
    is_repeat: bool = False
    interruptions: int = 0

    def after_death(self) -> list[TileInFlight]:
        """Return the retries after a death: the tile, then its halves, then none."""
        if not self.deaths:
            return [replace(self, deaths=1)]
        middle = len(self.nodes) // 2
        halves = (self.nodes[:middle], self.nodes[middle:])
        return [replace(self, nodes=half) for half in halves] if middle else []

    def after_interruption(self, store: str) -> TileInFlight:
        """Return the retry after a worker missed the run's heartbeat.

        Raises:
            StoreError: this has happened again and again.
        """
        if self.interruptions >= MOST_INTERRUPTIONS:
            raise StoreError(
                f"{store}: expected workers to see this run's heartbeat, got "
                f"{MOST_INTERRUPTIONS} tries that missed it. Check file-system caching "
                "on them (NFS attribute cache); what is finished is kept."
            )
        return replace(self, interruptions=self.interruptions + 1)

    def width_that_fit(self, reports: Sequence[Computed | Failed]) -> int | None:
        """Return the number of nodes that fitted in one call, after a halving.

        None if nothing was too large, or if nodes failed, which also halves a tile.
        """
        widths = [report.width for report in reports if isinstance(report, Computed)]
        if len(widths) < len(reports) or not self.nodes[0].kind.vectorised:
            return None
        return max(widths) if self.deaths or max(widths) < len(widths) else None
