"""Storage of the numbered entries of a commit log: a folder, or memory."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from curvflow.stores.files import Disk, disk_errors

LIST_EVERY = 1.0  # seconds
# What a file system without hard links answers.
NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL}
TAKEN = {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}


MARK = re.compile(r"([0-9]{10,})-([0-9a-f]{8})\.mark")


def mark_name(number: int, checksum: str) -> str:
    """Return the name of a mark."""
    return f"{number:010}-{checksum}.mark"


def parse_marks(names: Iterable[str]) -> set[tuple[int, str]]:
    """Return numbers and checksums of those names that are marks."""
    matches = (MARK.fullmatch(name) for name in names)
    return {(int(mark[1]), mark[2]) for mark in matches if mark}


class Commits(Protocol):
    """Numbered entries, each created once, whole, and never changed."""

    def after(self, number: int) -> list[int]:
        """Return the numbers above `number` that are taken, ascending."""

    def read(self, number: int) -> bytes | None:
        """Return one entry, requested by its name; None if it is missing."""

    def time(self, number: int) -> float:
        """Return the time of writing of an entry, by the clock of its storage."""

    def create(self, number: int, data: bytes) -> bool:
        """Create an entry durably, after its predecessor; False if it is taken."""

    def replace(self, number: int, data: bytes) -> None:
        """Replace a torn or missing entry, durably."""

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove entries; only of the claims, never of the commit log."""

    def mark(self, number: int, checksum: str) -> None:
        """Note next to an entry which one it is, by a name that no other entry has."""

    def marks(self) -> set[tuple[int, str]]:
        """Return numbers and checksums that were noted."""


class MemoryCommits:
    """Entries in a dictionary; creation is atomic among threads."""

    def __init__(self) -> None:
        self._entries: dict[int, bytes] = {}
        self._times: dict[int, float] = {}

    def after(self, number: int) -> list[int]:
        """Return the numbers above `number` that are taken, ascending."""
        return sorted(taken for taken in list(self._entries) if taken > number)

    def read(self, number: int) -> bytes | None:
        """Return one entry; None if it is missing."""
        return self._entries.get(number)

    def time(self, number: int) -> float:
        """Return the time of writing of an entry."""
        return self._times[number]

    def create(self, number: int, data: bytes) -> bool:
        """Create an entry; False if the number is taken."""
        self._times.setdefault(number, time.monotonic())
        return self._entries.setdefault(number, data) is data

    def replace(self, number: int, data: bytes) -> None:
        """Replace a torn or missing entry."""
        self._entries[number] = data

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove entries."""
        for number in numbers:
            self._entries.pop(number, None)

    def mark(self, number: int, checksum: str) -> None:
        """Note nothing: memory is not merged with another's."""

    def marks(self) -> set[tuple[int, str]]:
        """Return nothing."""
        return set()


class LocalCommits:
    """Entries as files, `0000000001.json` and so on.

    A file is written and flushed under a temporary name and then gets its number as a
    second name by a hard link, which fails if the number is taken. Where the file
    system knows no hard links, a temporary *folder* that holds the file is renamed to
    the number instead: a rename onto a folder that is not empty, or onto a file, fails,
    so that is as exclusive and as whole, and both ways exclude each other.
    """

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        tmp: Path,
        *,
        prepare: Callable[[], None],
        durable: bool = True,
    ) -> None:
        """Bind to the folder of entries; `tmp` must be on the same file system."""
        self._disk, self._folder, self._tmp = disk, folder, tmp
        self._prepare, self._durable = prepare, durable
        self._listed = float("-inf")

    def after(self, number: int) -> list[int]:
        """Return the numbers above `number` that are taken, ascending."""
        # Where the next one is missing there are none, unless it was lost from under a
        # later one. The whole folder, which may be long, shows that once a second.
        now = time.monotonic()
        with disk_errors(self._folder):
            if now - self._listed < LIST_EVERY and not self._path(number + 1).exists():
                return []
            self._listed = now
            try:
                names = os.listdir(self._folder)  # noqa: PTH208  # a Path per name costs more
            except FileNotFoundError:
                return []
        first = self._path(number + 1).name
        return sorted(
            int(name[:-5])
            for name in names
            if name >= first and name.endswith(".json") and name[:-5].isdigit()
        )

    def read(self, number: int) -> bytes | None:
        """Return one entry; None if it is missing."""
        path = self._path(number)
        with disk_errors(path):
            try:
                return path.read_bytes()
            except IsADirectoryError:
                return (path / "entry.json").read_bytes()
            except FileNotFoundError:
                return None

    def time(self, number: int) -> float:
        """Return the time of writing of an entry, by the clock of its storage."""
        with disk_errors(self._path(number)):
            return self._path(number).stat().st_mtime

    def create(self, number: int, data: bytes) -> bool:
        """Create an entry durably, after its predecessor; False if it is taken."""
        self._prepare()
        written = self._tmp / f"commit-{uuid4().hex}"
        with disk_errors(self._path(number), len(data)):
            try:
                self._disk.write(written, data)
                self._flush(written)
                if not self._publish(written, self._path(number)):
                    return False
                self._flush(self._folder)
                return True
            finally:
                self._disk.remove(written)

    def replace(self, number: int, data: bytes) -> None:
        """Replace a torn or missing entry, durably."""
        target, written = self._path(number), self._tmp / f"commit-{uuid4().hex}"
        self._prepare()
        with disk_errors(target, len(data)):
            try:
                self._disk.write(written, data)
                self._flush(written)
                if target.is_dir():
                    self._disk.remove(target)
                self._disk.rename(written, target)
                self._flush(self._folder)
            finally:
                self._disk.remove(written)

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove entries."""
        for number in numbers:
            with disk_errors(self._path(number)):
                self._disk.remove(self._path(number))

    def mark(self, number: int, checksum: str) -> None:
        """Note next to an entry which one it is; not durable, and not essential."""
        with suppress(OSError):
            self._disk.write(self._folder / mark_name(number, checksum), b"")

    def marks(self) -> set[tuple[int, str]]:
        """Return numbers and checksums that were noted."""
        with disk_errors(self._folder):
            try:
                return parse_marks(path.name for path in self._folder.iterdir())
            except FileNotFoundError:
                return set()

    def _flush(self, path: Path) -> None:
        if self._durable:
            self._disk.flush(path)

    def _publish(self, written: Path, target: Path) -> bool:
        try:
            self._disk.link(written, target)
        except OSError as error:
            # A network file system may link, lose the answer, and report failure.
            if self._disk.count_links(written) == 2:
                return True
            if error.errno == errno.EEXIST:
                return False
            if error.errno in NO_LINKS:
                return self._publish_folder(written, target)
            raise
        return True

    def _publish_folder(self, written: Path, target: Path) -> bool:
        folder = written.with_suffix(".folder")
        try:
            self._disk.make_folder(folder)
            self._disk.rename(written, folder / "entry.json")
            self._disk.flush(folder)
            self._disk.rename(folder, target)
        except OSError as error:
            if error.errno in TAKEN:
                return False
            raise
        finally:
            self._disk.remove(folder)
        return True

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:010}.json"
