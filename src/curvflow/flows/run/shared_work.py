"""Share work with the other runs on a store: claim, follow, give up."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from curvflow.flows.graph.graph import Node
from curvflow.flows.graph.heartbeats import Watch
from curvflow.flows.graph.stopping import Stopping
from curvflow.schemas.records.receipts import RunRecord
from curvflow.schemas.words import counted
from curvflow.stores.base import Store


class Waiting:
    """Tells of the runs that have what is still to be done, whenever they change."""

    def __init__(self, store: Store, tell: Callable[[str], None]) -> None:
        """Begin with no run waited for.

        Args:
            store: holds claims and signs of life.
            tell: takes a line.
        """
        self._store, self._tell = store, tell
        self._told: set[int] = set()

    def on(self, busy: Mapping[str, str]) -> None:
        """Say who is waited for, unless it was said before.

        Args:
            busy: stage of each node that others are at work on, by action key.
        """
        holders = self._store.claims.holders()
        stages: dict[int, Counter[str]] = {}
        for key, stage in busy.items():
            if key in holders:  # or it was given up meanwhile
                stages.setdefault(holders[key], Counter())[stage] += 1
        if stages and stages.keys() != self._told:
            self._told = set(stages)
            names = self._names()
            who = [
                f"{names.get(run, 'another run')}: {_listed(stages[run])}"
                for run in sorted(stages)
            ]
            self._tell(f"waiting for {'; '.join(who)}")

    def _names(self) -> dict[int, str]:
        signs, names = self._store.heartbeats(), {}
        for run in self._store.index().runs:
            names[run.begun] = f"run {run.number} of {run.study}"
            if sign := signs.get(run.begun):
                names[run.begun] += f" (process {sign['pid']} on {sign['host']})"
        return names


def _listed(stages: Counter[str]) -> str:
    return ", ".join(counted(count, f"{stage} node") for stage, count in stages.items())


# Seconds between looks at what other runs are at work on: the first, and the longest.
LOOK_AFTER, LOOK_AT_LAST = 0.1, 2.0


class Others:
    """What this run has claimed, and what it leaves to others.

    Attributes:
        busy: nodes that others are at work on, to be tried again, by action key.
    """

    def __init__(
        self,
        store: Store,
        run: RunRecord,
        silence: float,
        tell: Callable[[str], None],
    ) -> None:
        """Begin with nothing claimed.

        Args:
            store: holds claims and signs of life.
            run: this one.
            silence: seconds without a sign of life after which a run is taken for gone.
            tell: takes a line.
        """
        self._store, self._begun = store, run.begun
        self._watch = Watch(store, silence=silence)
        self._waiting = Waiting(store, tell)
        self._finished: list[str] = []  # claimed, done, and not given up yet
        self._pause, self._before, self._next = LOOK_AFTER, 0, 0.0
        self.busy: dict[str, Node] = {}

    def claim(self, nodes: Sequence[Node]) -> dict[str, Node]:
        """Claim nodes, and remember which of them others are at work on.

        Args:
            nodes: that can be computed.

        Returns:
            Those that are ours now, by action key, in order.
        """
        keyed = {node.key: node for node in nodes if node.key}
        keys, gone = list(keyed), self._watch.is_gone
        claims = self._store.claims
        ours = claims.take(self._begun, keys, gone, done=self._finished)
        if ours:
            self._finished.clear()
        if not self.busy:
            self._next = time.monotonic() + self._pause
        self.busy |= {key: keyed.pop(key) for key in set(keyed) - set(ours)}
        return keyed

    def finished(self, keys: Iterable[str]) -> None:
        """Take note of what is done; our claims go with the next that are taken."""
        self._finished += [key for key in keys if self.busy.pop(key, None) is None]

    def give_up(self) -> None:
        """Say now what is done or has failed, so that nobody waits for it."""
        if self._finished:
            self._store.claims.release(self._begun, self._finished)
            self._finished.clear()

    def is_time(self) -> bool:
        """Return whether to look again at what others have been at work on."""
        return bool(self.busy) and time.monotonic() >= self._next

    def tried_again(self) -> list[Node]:
        """Return what others were at work on; the longer nothing moves, the rarer."""
        nodes = list(self.busy.values())
        is_moving = len(nodes) != self._before
        self._before = len(nodes)
        self._pause = LOOK_AFTER if is_moving else min(2 * self._pause, LOOK_AT_LAST)
        self.busy.clear()
        return nodes

    def wait(self, stop: Stopping) -> None:
        """Wait until it is time to look again: nothing else is left to be done.

        Args:
            stop: ends the waiting.

        Raises:
            Stopped: the run was asked to end.
        """
        self.give_up()
        self._waiting.on({key: node.stage for key, node in self.busy.items()})
        stop.sleep(max(0.0, self._next - time.monotonic()))

    def sweep(self) -> None:
        """Remove all claims if nobody else who made some is at work."""
        self._store.claims.sweep(
            lambda run: run == self._begun or self._watch.is_gone(run)
        )
