"""Which run is at work on which nodes: saves work, and nothing depends on it.

Claims are a numbered log of their own, beside that of the commits. Whoever takes a
number has read all before it, so two runs never claim one node at the same time; a
higher number takes over from an owner that is gone. Nothing is flushed, nothing is
needed after the runs have ended, and a claim that is lost costs a computation twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from curvflow.errors import StoreError
from curvflow.stores.commits import Commits
from curvflow.stores.entries import TornEntryError, decode, encode

Gone = Callable[[int], bool]


class Claims:
    """Keys that runs are at work on; a run goes by the log number it began at."""

    def __init__(self, commits: Commits) -> None:
        """Start with nothing read.

        Args:
            commits: where the claims' entries lie.
        """
        self._commits, self._number = commits, 0
        self._holder: dict[str, int] = {}

    def take(self, run: int, keys: Sequence[str], gone: Gone) -> list[str]:
        """Claim those keys that no other run is at work on.

        Args:
            run: who asks.
            keys: action keys.
            gone: whether a run has ended or shows no sign of life.

        Returns:
            The keys that are ours now, in order.
        """
        while True:
            self._refresh()
            others = {self._holder[key] for key in keys if key in self._holder}
            busy = {other for other in others - {run} if not gone(other)}
            ours = [key for key in keys if self._holder.get(key) not in busy]
            if not ours or self._append("claimed", run, ours):
                return ours

    def release(self, run: int, keys: Sequence[str]) -> None:
        """Give up keys that are not done, having failed, say."""
        while not self._append("released", run, keys):
            self._refresh()

    def held(self) -> dict[str, int]:
        """Return the run that has claimed each key, done or not."""
        self._refresh()
        return dict(self._holder)

    def sweep(self, gone: Gone) -> None:
        """Remove the entries if all who made them are gone; the last keeps its number.

        Args:
            gone: whether a run has ended or shows no sign of life.
        """
        self._refresh()
        if all(gone(run) for run in set(self._holder.values())):
            self._commits.remove(
                [n for n in self._commits.after(0) if n < self._number]
            )
            self._holder.clear()

    def _append(self, kind: str, run: int, keys: Sequence[str]) -> bool:
        number = self._number + 1
        entry = {"type": kind, "run": run, "keys": list(keys)}
        return self._commits.create(number, encode(number, entry))

    def _refresh(self) -> None:
        for number in self._commits.after(self._number):
            self._number = number
            try:
                entry = decode(number, self._commits.read(number))
            except (TornEntryError, StoreError):
                continue  # power was lost, or another run has swept
            for key in entry["keys"]:
                if entry["type"] == "claimed":
                    self._holder[key] = entry["run"]
                elif self._holder.get(key) == entry["run"]:
                    del self._holder[key]
