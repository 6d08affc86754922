"""The numbered entries of a log as objects of a bucket."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from uuid import uuid4

from curvflow.errors import StoreError
from curvflow.stores.bucket import Bucket

# Entries fetched ahead, so that a long log is not read one answer after the other.
AHEAD = 64


class ObjectCommits:
    """Entries as objects, `0000000001.json` and so on, by conditional put."""

    def __init__(
        self, bucket: Bucket, folder: str, *, prepare: Callable[[], None]
    ) -> None:
        """Bind the log to its folder.

        Args:
            bucket: where it is.
            folder: of the entries.
            prepare: makes the store, if need be.
        """
        self._bucket, self._folder, self._prepare = bucket, folder, prepare
        self._listed: list[int] = []
        self._ahead: dict[int, bytes | None] = {}

    def after(self, number: int) -> list[int]:
        """Return the numbers above `number` that are taken, ascending."""
        names = (
            one.path.rpartition("/")[2]
            for one in self._bucket.list(self._folder, after=self._path(number))
        )
        self._listed = sorted(
            int(name[:-5])
            for name in names
            if name.endswith(".json") and name[:-5].isdigit()
        )
        self._ahead.clear()
        return list(self._listed)

    def read(self, number: int) -> bytes | None:
        """Return one entry; those listed after it are fetched along with it.

        Args:
            number: its number.

        Returns:
            The entry; None if it is not there.

        Raises:
            StoreError: the server does not answer.
        """
        if number not in self._ahead:
            later = [one for one in self._listed if one > number]
            wanted = [number, *later[: AHEAD - 1]]
            found = self._bucket.get_all([self._path(one) for one in wanted])
            self._ahead = dict(zip(wanted, found, strict=True))
        return self._ahead.pop(number)

    def time(self, number: int) -> float:
        """Return when an entry was written, by the server's clock."""
        found = self._bucket.head(self._path(number))
        return found.time if found else 0.0

    def create(self, number: int, data: bytes) -> bool:
        """Create an entry durably.

        A request whose answer was lost is sent again by the client, and is then told
        that the number is taken: by us. Only the nonce tells; two runs may well begin
        with entries that are equal.

        Args:
            number: its number; that before it must be taken.
            data: all of it.

        Returns:
            Whether the number is ours; else another has taken it.

        Raises:
            StoreError: the server refused, or does not answer.
        """
        self._prepare()
        path, nonce = self._path(number), uuid4().hex
        try:
            ours = self._bucket.create(path, data, nonce=nonce)
        except StoreError:
            with suppress(StoreError):
                if found := self._bucket.nonce(path):
                    return found == nonce
            raise
        return ours or self._bucket.nonce(path) == nonce

    def replace(self, number: int, data: bytes) -> None:
        """Put an entry in place of one that is torn or lost, durably."""
        self._prepare()
        self._bucket.put(self._path(number), data)

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove entries."""
        self._bucket.remove(self._path(number) for number in numbers)

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:010}.json"
