"""Work shared with the other runs on a store: claimed, followed, released."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from curvflow.flows.graph.graph import Node
from curvflow.flows.graph.heartbeats import HeartbeatMonitor
from curvflow.flows.run.context import RunContext
from curvflow.schemas.records.receipts import Receipt, RunRecord
from curvflow.schemas.words import counted
from curvflow.stores.base import Store

# Seconds between looks at what other runs are computing: the first, and the longest.
LOOK_AFTER, LOOK_AT_LAST = 0.1, 2.0


class SharedWork:
    """The nodes that this run has claimed, and those it leaves to other runs.

    Attributes:
        busy: nodes that other runs are computing, to be tried again, by action key.
    """

    def __init__(self, context: RunContext, record: RunRecord) -> None:
        """Begin with nothing claimed."""
        self._store, self._stop = context.store, context.stop
        self._begun = record.begun
        self._monitor = HeartbeatMonitor(context.store, silence=context.options.silence)
        self._notice = WaitNotice(context.store, context.observer.tell)
        self._finished: list[str] = []  # claimed, done, and not released yet
        self._pause, self._before, self._next = LOOK_AFTER, 0, 0.0
        self.busy: dict[str, Node] = {}

    def claim(self, nodes: Sequence[Node]) -> tuple[list[Node], Mapping[str, Receipt]]:
        """Claim nodes that can be computed, and remember those of other runs.

        Returned are the nodes to compute, and the receipts of those done by now.
        """
        ours = {node.key: node for node in nodes if node.key}
        keys = list(ours)
        claims, is_gone = self._store.claims, self._monitor.is_gone
        claimed = claims.take(self._begun, keys, is_gone, done=self._finished)
        if claimed:
            self._finished.clear()
        if not self.busy:
            self._next = time.monotonic() + self._pause
        self.busy |= {key: ours.pop(key) for key in set(ours) - set(claimed)}
        done = self._store.live(keys)
        self.finished(done)
        return [node for key, node in ours.items() if key not in done], done

    def finished(self, keys: Iterable[str]) -> None:
        """Note finished nodes; their claims are released with the next ones taken."""
        self._finished += [key for key in keys if self.busy.pop(key, None) is None]

    def release(self) -> None:
        """Release finished and failed nodes now, so that no run waits for them."""
        if self._finished:
            self._store.claims.release(self._begun, self._finished)
            self._finished.clear()

    def retries(self) -> list[Node]:
        """Return the nodes of other runs when it is time to look at them again.

        The longer nothing moves, the longer the pause.
        """
        if not self.busy or time.monotonic() < self._next:
            return []
        nodes = list(self.busy.values())
        is_moving = len(nodes) != self._before
        self._before = len(nodes)
        self._pause = LOOK_AFTER if is_moving else min(2 * self._pause, LOOK_AT_LAST)
        self.busy.clear()
        return nodes

    def wait(self) -> bool:
        """Wait for the nodes of other runs; False if there are none.

        Raises:
            Stopped: the run was asked to end.
        """
        if not self.busy:
            return False
        self.release()
        self._notice.show({key: node.stage for key, node in self.busy.items()})
        self._stop.sleep(max(0.0, self._next - time.monotonic()))
        return True

    def sweep(self) -> None:
        """Remove all claims if no other run is at work."""
        self._store.claims.sweep(
            lambda run: run == self._begun or self._monitor.is_gone(run),
            readers=self._store.heartbeats,
        )


class WaitNotice:
    """Names the runs that this one waits for, whenever they change."""

    def __init__(self, store: Store, tell: Callable[[str], None]) -> None:
        self._store, self._tell = store, tell
        self._shown: set[int] = set()

    def show(self, busy: Mapping[str, str]) -> None:
        """Name the runs that have the given nodes, from action key to stage."""
        holders = self._store.claims.holders()
        stages: dict[int, Counter[str]] = {}
        for key, stage in busy.items():
            if key in holders:  # or it was released meanwhile
                stages.setdefault(holders[key], Counter())[stage] += 1
        if stages and stages.keys() != self._shown:
            self._shown = set(stages)
            names = self._names()
            parts = [
                f"{names.get(run, 'another run')}: {_listed(stages[run])}"
                for run in sorted(stages)
            ]
            self._tell(f"waiting for {'; '.join(parts)}")

    def _names(self) -> dict[int, str]:
        beats, names = self._store.heartbeats(), {}
        for run in self._store.index().runs:
            names[run.begun] = f"run {run.number} of {run.study}"
            if beat := beats.get(run.begun):
                names[run.begun] += f" (process {beat['pid']} on {beat['host']})"
        return names


def _listed(stages: Counter[str]) -> str:
    return ", ".join(counted(count, f"{stage} node") for stage, count in stages.items())
