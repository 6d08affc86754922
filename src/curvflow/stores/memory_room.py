"""The room that a store in memory takes, as if it were on a disk."""

from __future__ import annotations

import time
from collections.abc import Iterable, MutableMapping

from curvflow.schemas.nodes import Array
from curvflow.stores.commits import MemoryCommits
from curvflow.stores.room import Item, Place, home

Arrays = dict[str, Array]


class MemoryRoom:
    """Payloads in dictionaries; nothing is ever left unfinished in memory."""

    def __init__(
        self,
        commits: MemoryCommits,
        *,
        payloads: MutableMapping[str, Arrays],
        aside: MutableMapping[str, Arrays],
        times: MutableMapping[str, float],
    ) -> None:
        """Bind to a store's dictionaries.

        Args:
            commits: the log.
            payloads: by id.
            aside: those in the trash and in quarantine, by path.
            times: when each was written or moved, by id.
        """
        self._commits, self._payloads = commits, payloads
        self._aside, self._times = aside, times

    def exists(self) -> bool:
        """Whether the store is there: as long as the process."""
        return True

    def clock(self) -> float:
        """Return the store's time."""
        return time.monotonic()

    def committed(self, number: int) -> float:
        """Return the time of an entry of the log."""
        return self._commits.time(number)

    def items(self, place: Place) -> list[Item]:
        """Return what is in one place."""
        held = {f"payloads/{name[:2]}/{name}": a for name, a in self._payloads.items()}
        held |= self._aside
        return [
            self._item(path, arrays)
            for path, arrays in sorted(held.items())
            if path.startswith(f"{place}/")
        ]

    def _item(self, path: str, arrays: Arrays) -> Item:
        size = sum(array.nbytes for array in arrays.values())
        return Item(path, size, self._times.get(path.rpartition("/")[2], 0.0))

    def move(self, item: Item, folder: str) -> bool:
        """Move a payload to another folder of the store."""
        there, key = self._place(item.path)
        arrays = there.get(key)
        if arrays is None:
            return False
        target, name = self._place(f"{folder}/{item.name}")
        if folder != home(item):
            self._times[item.name] = time.monotonic()
        target[name] = arrays  # first, so that it is there at every moment
        there.pop(key, None)
        return True

    def remove(self, items: Iterable[Item]) -> None:
        """Remove what is there of these, for good."""
        for item in items:
            there, key = self._place(item.path)
            there.pop(key, None)

    def _place(self, path: str) -> tuple[MutableMapping[str, Arrays], str]:
        """Return the dictionary in which a payload is, and its key there."""
        if path.startswith("payloads/"):
            return self._payloads, path.rpartition("/")[2]
        return self._aside, path
