"""Claims: marks that a run computes some nodes, to save work; nothing depends on them.

Claims are a numbered log next to that of the commits. A run that takes a
number has read all before it, so two runs never claim a node at the same time; a
higher number takes over from a dead owner. Nothing is flushed, nothing is
needed after the runs have ended, and a lost claim costs one repeated computation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from threading import RLock

from curvflow.errors import StoreError
from curvflow.stores.commits import Commits
from curvflow.stores.log_entries import TornEntryError, decode, encode

IsDead = Callable[[int], bool]

# Attempts at an entry, and seconds to wait where a taken number is not to be seen.
MAX_ATTEMPTS = 200
LISTING_DELAY = 0.05


class Claims:
    """Keys by the run that computes them; a run is named by the log number it began at.

    Safe among threads.
    """

    def __init__(self, commits: Commits) -> None:
        """Start with nothing read."""
        self._commits, self._number = commits, 0
        self._holder: dict[str, int] = {}
        self._entries: set[int] = set()  # read, and not removed
        self._lock = RLock()

    def take(
        self,
        run: int,
        keys: Sequence[str],
        is_dead: IsDead,
        *,
        done: Sequence[str] = (),
    ) -> list[str]:
        """Claim the keys that no live run holds and return them; release `done`."""
        with self._lock:
            for _ in range(MAX_ATTEMPTS):
                self._refresh()
                others = {self._holder[key] for key in keys if key in self._holder}
                busy = {other for other in others - {run} if not is_dead(other)}
                ours = [key for key in keys if self._holder.get(key) not in busy]
                if not ours or self._append(run, ours, done):
                    return ours
            return ours  # the log is slow to show itself; computing twice does no harm

    def release(self, run: int, keys: Sequence[str]) -> None:
        """Release keys that are done or have failed."""
        with self._lock:
            for _ in range(MAX_ATTEMPTS):
                if self._append(run, (), keys):
                    return
                self._refresh()

    def holders(self) -> dict[str, int]:
        """Return the run that has claimed each key, done or not."""
        with self._lock:
            self._refresh()
            return dict(self._holder)

    def sweep(self, is_dead: IsDead, *, readers: Callable[[], Iterable[int]]) -> None:
        """Remove the entries, except the last, if all holders and readers are dead.

        A run that holds nothing may not have read all entries yet. Once they are
        removed, it would find the next number free, though later ones are taken.
        """
        with self._lock:
            self._refresh()
            runs = {*self._holder.values(), *readers()}
            if all(is_dead(run) for run in runs):
                self._commits.remove(sorted(self._entries - {self._number}))
                self._entries &= {self._number}
                self._holder.clear()

    def _append(self, run: int, keys: Sequence[str], done: Sequence[str]) -> bool:
        number = self._number + 1
        entry = {"type": "claimed", "run": run, "keys": list(keys), "done": list(done)}
        if self._commits.create(number, encode(number, entry)):
            return True
        if self._commits.read(number) is None:
            time.sleep(LISTING_DELAY)  # taken, and not to be seen yet
        return False

    def _refresh(self) -> None:
        """Read new entries, each by its name too, because listings may lag."""
        listed = self._commits.after(self._number)
        last = max(listed, default=self._number)
        first = self._number + 1
        if not self._number and listed:  # all before may have been swept
            first = listed[0]
            while first > 1 and self._commits.read(first - 1) is not None:
                first -= 1
        while first <= last or self._commits.read(first) is not None:
            self._fold(first)
            first += 1

    def _fold(self, number: int) -> None:
        self._number = number
        try:
            data = self._commits.read(number)
            self._entries |= set() if data is None else {number}
            entry = {} if data is None else decode(number, data)
        except (TornEntryError, StoreError):
            return  # power was lost, or the file system is in trouble
        for key in entry.get("keys", ()):
            self._holder[key] = entry["run"]
        for key in entry.get("done", ()):
            if self._holder.get(key) == entry["run"]:
                del self._holder[key]
