"""Stored files as garbage collection sees them: listed, moved to the trash, deleted."""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from curvflow.errors import StoreError
from curvflow.stores.commits import LocalCommits
from curvflow.stores.files import Disk, disk_errors

Folder = Literal["payloads", "trash", "quarantine", "tmp", "partials", "runs"]


@dataclass(frozen=True, slots=True)
class Item:
    """A file, or a folder with its content.

    Attributes:
        path: within the store, parts joined by `/`.
        bytes: on the disk.
        time: when it was last written, or moved to the trash, by the store's clock.
    """

    path: str
    bytes: int
    time: float

    @property
    def name(self) -> str:
        """The path's last part."""
        return self.path.rpartition("/")[2]

    @property
    def payload(self) -> str:
        """Id of the payload, if it is one."""
        return self.name.partition(".")[0]


class StoredFiles(Protocol):
    """The files of a store, for garbage collection and verification.

    Only names that a store writes are listed, so nothing else is touched.
    Times are by the store's clock; that of the collecting process is never read.
    """

    def exists(self) -> bool:
        """Return whether the store exists, even if it is empty."""

    def clock(self) -> float:
        """Return the store's clock in seconds; earlier if nothing can be written."""

    def entry_time(self, number: int) -> float:
        """Return the time of an entry of the log."""

    def items(self, folder: Folder) -> list[Item]:
        """Return the files in one folder by path; of `runs` the heartbeats alone."""

    def move(self, item: Item, folder: str) -> bool:
        """Move a payload to another folder of the store; False if it is gone."""
        # At every moment it is in the one, in the other, or in both.

    def redate(self, items: Iterable[Item]) -> None:
        """Date files that are ahead of the store's clock as written now."""

    def remove(self, items: Iterable[Item]) -> None:
        """Delete files for good; missing ones are skipped."""


def payload_folder(item: Item) -> str:
    """Return the folder of live payloads to which a payload belongs."""
    return f"payloads/{item.payload[:2]}"


def trash_folder(folder: Literal["trash", "quarantine"], number: int) -> str:
    """Return the folder for payloads moved by the log entry of this number."""
    return f"{folder}/{number:010}"


PAYLOAD = re.compile(r"[0-9a-f]{64}\.zarr(\.zip)?")

# Patterns of the names of subfolders, if there are any, and of the files in them.
PATTERNS: dict[Folder, tuple[str | None, re.Pattern[str]]] = {
    "payloads": (r"[0-9a-f]{2}", PAYLOAD),
    "trash": (r"[0-9]{10,}", PAYLOAD),
    "quarantine": (r"[0-9]{10,}", PAYLOAD),
    "tmp": (None, re.compile(r"[a-z]+-[0-9a-f]{32}(\.folder)?")),
    "partials": (None, re.compile(r"[0-9A-Za-z]+\.zarr\.zip")),
    "runs": (None, re.compile(r"[0-9]{10,}\.beat")),
}
TAKEN = {errno.ENOTEMPTY, errno.EEXIST}


class LocalFiles:
    """The stored files of a local store; symbolic links are never followed."""

    def __init__(
        self,
        folder: Path,
        disk: Disk,
        *,
        commits: LocalCommits,
        temporary: Callable[[], Path],
        forget: Callable[[], None],
    ) -> None:
        """Bind to the store's folder; `forget` closes opened payloads."""
        self._folder, self._disk, self._commits = folder, disk, commits
        self._temporary, self._forget = temporary, forget

    def exists(self) -> bool:
        """Return whether the folder is a store."""
        with disk_errors(self._folder):
            return (self._folder / "FORMAT").exists()

    def clock(self) -> float:
        """Return the time of a file written now, or of the latest folder."""
        if not self._folder.exists():
            return 0.0
        try:
            written = self._temporary()
            with disk_errors(written):
                self._disk.write(written, b"")
                time = written.stat().st_mtime
                self._disk.remove(written)
                return time
        except StoreError:
            folders = [self._folder, *self._folder.glob("*/")]
            return max((p.stat().st_mtime for p in folders if p.exists()), default=0.0)

    def entry_time(self, number: int) -> float:
        """Return the time of an entry of the log."""
        return self._commits.time(number)

    def items(self, folder: Folder) -> list[Item]:
        """Return the files in one folder, ordered by path."""
        inner, wanted = PATTERNS[folder]
        top = self._folder / folder
        with disk_errors(top):
            folders = [top] if inner is None else list(_folders(top, inner))
            items = [item for folder in folders for item in self._items(folder, wanted)]
        if folder == "trash":
            times = {folder.name: _time(folder) for folder in folders}
            items = [_moved(item, times) for item in items]
        return sorted(items, key=lambda item: item.path)

    def _items(self, folder: Path, wanted: re.Pattern[str]) -> Iterator[Item]:
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in entries:
                if wanted.fullmatch(entry.name) and not entry.is_symlink():
                    with suppress(FileNotFoundError):
                        size, time = _size_and_time(Path(entry.path))
                        path = Path(entry.path).relative_to(self._folder).as_posix()
                        yield Item(path, size, time)

    def move(self, item: Item, folder: str) -> bool:
        """Move a payload to another folder of the store; False if it is gone."""
        source = self._folder / item.path
        target = self._folder / folder / item.name
        self._forget()
        with disk_errors(source):
            while source.exists():
                self._disk.make_folder(target.parent)
                # Another collection moved it first, or found the folder empty.
                with suppress(FileNotFoundError):
                    self._rename(source, target)
                    return True
        return False

    def _rename(self, source: Path, target: Path) -> None:
        try:
            self._disk.rename(source, target)
        except OSError as error:
            if error.errno not in TAKEN or not target.is_dir():
                raise
            # A folder of the same content, which cannot be replaced in one step.
            self._disk.remove(source)

    def redate(self, items: Iterable[Item]) -> None:
        """Date files that are ahead of the store's clock as written now."""
        for item in items:
            path = self._folder / item.path
            with disk_errors(path), suppress(FileNotFoundError):
                _date_now(path)
                if item.path.startswith("trash/"):
                    os.utime(path.parent)

    def remove(self, items: Iterable[Item]) -> None:
        """Delete files for good, and folders of the trash that this empties."""
        self._forget()  # an open file would keep its room
        for item in items:
            path = self._folder / item.path
            with disk_errors(path):
                # Another collection may be at work on the same folder.
                with suppress(FileNotFoundError):
                    self._disk.remove(path)
                if item.path.startswith("trash/"):
                    self._disk.prune(path.parent)


def _folders(top: Path, name: str) -> Iterator[Path]:
    with suppress(FileNotFoundError), os.scandir(top) as entries:
        for entry in entries:
            if re.fullmatch(name, entry.name) and entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)


def _size_and_time(path: Path) -> tuple[int, float]:
    """Return the bytes of a file or folder, and the latest time of writing."""
    state = path.lstat()
    size, time = state.st_size, state.st_mtime
    if path.is_dir() and not path.is_symlink():
        size = 0
        for inner in path.iterdir():
            more, later = _size_and_time(inner)
            size, time = size + more, max(time, later)
    return size, time


def _date_now(path: Path) -> None:
    os.utime(path, follow_symlinks=False)
    if path.is_dir() and not path.is_symlink():
        for inner in path.iterdir():
            _date_now(inner)


def _time(folder: Path) -> float:
    """Return the time of a folder's last change; infinity if it is gone."""
    with suppress(FileNotFoundError):
        return folder.stat().st_mtime
    return math.inf


def _moved(item: Item, times: dict[str, float]) -> Item:
    folder = item.path.split("/")[1]
    return Item(item.path, item.bytes, max(item.time, times.get(folder, item.time)))
