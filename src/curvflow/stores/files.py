"""File operations of a store, and the FORMAT file that marks one.

Everything a local store changes on disk passes through `Disk`, so that tests can record
the order of operations, fail any of them or kill the process before it.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any

from curvflow.errors import StoreError, StoreFormatError

UNFLUSHABLE = {errno.EINVAL, errno.EOPNOTSUPP}
OCCUPIED = {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.EBUSY}
FULL = {errno.ENOSPC, errno.EDQUOT}
# What NumPy ends in with a file that holds no arrays, or is broken.
NO_ARRAYS = (
    *(ValueError, EOFError, RuntimeError, SyntaxError, TokenError),
    *(zipfile.BadZipFile, zlib.error),
)


class Disk:
    """File operations; `flush` makes them survive a loss of power."""

    def make_folder(self, path: Path) -> None:
        """Make a folder and its missing parents."""
        try:
            path.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            if path.exists():
                raise
            # It was there, and empty, and another process has removed it since.
            path.mkdir(parents=True, exist_ok=True)

    def write(self, path: Path, data: bytes) -> None:
        """Write a new file; not durable before `flush`."""
        with path.open("xb") as file:
            file.write(data)

    def append(self, path: Path, data: bytes) -> None:
        """Append to a file in one operation."""
        with path.open("ab", buffering=0) as file:
            file.write(data)

    def flush(self, path: Path) -> None:
        """Flush a file's content, or a folder's list of names, to the medium."""
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        except OSError as error:
            # Some network file systems keep folders on the server and cannot do this.
            if error.errno not in UNFLUSHABLE or not path.is_dir():
                raise
        finally:
            os.close(number)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file or folder its final name; replaces a file of that name."""
        source.replace(target)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name, unless that name is taken."""
        target.hardlink_to(source)

    def count_links(self, path: Path) -> int:
        """Return the number of names that a file has."""
        return path.stat().st_nlink

    def remove(self, path: Path) -> None:
        """Remove a file or a folder with all in it, if it is there."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def prune(self, path: Path) -> None:
        """Remove a folder if it is empty."""
        try:
            path.rmdir()
        except OSError as error:
            if error.errno not in OCCUPIED:
                raise


@contextmanager
def disk_errors(path: Path, needed: int | None = None) -> Iterator[None]:
    """Turn an OSError into a StoreError with a remedy; `needed` bytes to be written."""
    try:
        yield
    except OSError as error:
        raise StoreError(_message(path, error, needed)) from error


def _message(path: Path, error: OSError, needed: int | None) -> str:
    if error.errno in FULL:
        room = "room" if needed is None else f"room for {needed} bytes"
        return (
            f"{path}: expected {room}, got {_free(path)} bytes free"
            f" ({error.strerror}). Free some space or name another store."
        )
    return (
        f"{path}: expected a store that can be read and written, got "
        f"{error.strerror or error}. Check the disk and your rights, "
        "or name another store."
    )


def _free(path: Path) -> int:
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


NUMBER = 1
CONTENT = b'{"store":"curvflow","format":%d}\n' % NUMBER


def check_format(content: bytes, location: str) -> None:
    """Raise StoreFormatError unless a FORMAT file is of this format or an older one."""
    number = (json_object(content) or {}).get("format")
    if not isinstance(number, int):
        raise StoreFormatError(
            f"{location}/FORMAT: expected the format of a store, got something else. "
            "Name another store."
        )
    if number > NUMBER:
        raise StoreFormatError(
            f"{location}: expected store format {NUMBER}, got {number}. "
            "Update curvflow."
        )


def check_empty(names: Collection[str], location: str) -> None:
    """Raise StoreFormatError if a folder without FORMAT file is not empty."""
    if names:
        raise StoreFormatError(
            f"{location}: expected a store or an empty folder, got a folder with "
            f"'{min(names)}' and no FORMAT file. Name another store."
        )


def json_object(text: bytes) -> dict[str, Any] | None:
    """Parse a JSON object; None if it is truncated or something else."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
