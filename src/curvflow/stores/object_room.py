"""The room that a store takes in a bucket."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from uuid import uuid4

from curvflow.errors import StoreError
from curvflow.stores.bucket import Bucket, Listed
from curvflow.stores.local_room import LAYOUT
from curvflow.stores.object_commits import ObjectCommits
from curvflow.stores.room import Item, Place


class ObjectRoom:
    """Objects below the prefix; those of other names are left alone."""

    def __init__(
        self, bucket: Bucket, *, commits: ObjectCommits, forget: Callable[[], None]
    ) -> None:
        """Bind to a bucket.

        Args:
            bucket: the store's.
            commits: the log, whose entries have times.
            forget: drops the payloads that are at hand.
        """
        self._bucket, self._commits, self._forget = bucket, commits, forget

    def exists(self) -> bool:
        """Whether the prefix is a store."""
        return self._bucket.head("FORMAT") is not None

    def clock(self) -> float:
        """Return the time of an object written now; of the log's end if none can be."""
        if not self.exists():
            return 0.0
        path = f"tmp/clock-{uuid4().hex}"
        try:
            self._bucket.put(path, b"")
            found = self._bucket.head(path)
            self._bucket.remove([path])
        except StoreError:
            found = None
        return found.time if found else self._latest()

    def _latest(self) -> float:
        return max((one.time for one in self._bucket.list("commits")), default=0.0)

    def committed(self, number: int) -> float:
        """Return the time of an entry of the log."""
        return self._commits.time(number)

    def items(self, place: Place) -> list[Item]:
        """Return what is in one place."""
        folder = "beats" if place == "runs" else place
        return sorted(
            (
                Item(one.path, one.bytes, one.time)
                for one in self._bucket.list(folder)
                if _is_ours(place, one)
            ),
            key=lambda item: item.path,
        )

    def move(self, item: Item, folder: str) -> bool:
        """Move a payload to another folder of the store."""
        self._forget()
        return self._bucket.move(item.path, f"{folder}/{item.name}")

    def remove(self, items: Iterable[Item]) -> None:
        """Remove what is there of these, for good."""
        self._forget()
        self._bucket.remove(item.path for item in items)


def _is_ours(place: Place, listed: Listed) -> bool:
    inner, wanted = LAYOUT[place]
    *folders, name = listed.path.split("/")[1:]
    if wanted.fullmatch(name) is None:
        return False
    if inner is None:
        return not folders
    return len(folders) == 1 and re.fullmatch(inner, folders[0]) is not None
