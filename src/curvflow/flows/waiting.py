"""Say which runs another waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

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
        holders = self._store.claims.held()
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
        signs, names = self._store.beats(), {}
        for run in self._store.index().runs:
            names[run.begun] = f"run {run.number} of {run.study}"
            if sign := signs.get(run.begun):
                names[run.begun] += f" (process {sign['pid']} on {sign['host']})"
        return names


def _listed(stages: Counter[str]) -> str:
    return ", ".join(counted(count, f"{stage} node") for stage, count in stages.items())
