"""Rows of arrays that lie uncompressed in files, read where they are.

Nothing is mapped into memory, so that an array may be larger than the address space
that a process has; what has been read stays in the system's cache while there is room.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.disk_arrays import DiskArray
from curvflow.schemas.nodes import Array

# Files kept open by one process.
MAX_OPEN = 256


@dataclass(frozen=True)
class RowFiles:
    """Rows that lie one behind another, in C order, in files of equal length.

    Attributes:
        paths: the files.
        shape: of the whole array.
        dtype: of the rows in the files.
        offset: bytes of a file before its first row.
        rows_per_file: rows of each file but the last.
        stamps: size and time of change of each file, which show whether it is the same.
    """

    paths: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    rows_per_file: int
    stamps: tuple[tuple[int, int], ...]

    def read(self, numbers: Array) -> Array:
        """Return rows by their numbers, in any order.

        Raises:
            InputError: a file has changed or ends too early.
        """
        read = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        if not read.size:
            return read
        content = read.reshape(-1).view(np.uint8).data
        size = read.nbytes // len(numbers)
        file, place = np.divmod(np.asarray(numbers, np.int64), self.rows_per_file)
        # Rows that lie one behind another in a file are read together.
        breaks = np.flatnonzero((np.diff(numbers) != 1) | (np.diff(file) != 0)) + 1
        bounds = [0, *breaks.tolist(), len(numbers)]
        firsts = bounds[:-1]
        where = zip(file[firsts].tolist(), place[firsts].tolist(), strict=True)
        for start, stop, (number, row) in zip(firsts, bounds[1:], where, strict=True):
            part = content[start * size : stop * size]
            self._fill(part, number, self.offset + row * size)
        for number in np.unique(file).tolist():  # once more, behind the last byte
            _check_same(self._opened(number), self.paths[number], self.stamps[number])
        return read

    def _opened(self, number: int) -> _Open:
        return _opened(self.paths[number], self.stamps[number])

    def _fill(self, part: memoryview, number: int, place: int) -> None:
        opened = self._opened(number)
        while part:
            count = os.preadv(opened.number, [part], place)
            if not count:
                raise _changed(self.paths[number])
            part, place = part[count:], place + count


class _Open:
    """A file that is open as long as this object is there."""

    def __init__(self, path: str) -> None:
        self.number = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)


@lru_cache(maxsize=MAX_OPEN)
def _opened(path: str, stamp: tuple[int, int]) -> _Open:
    try:
        opened = _Open(path)
    except OSError as error:
        raise _changed(path) from error
    _check_same(opened, path, stamp)
    return opened


def _check_same(opened: _Open, path: str, stamp: tuple[int, int]) -> None:
    if stamp_of(os.fstat(opened.number)) != stamp:
        raise _changed(path)


def _changed(path: str) -> InputError:
    return InputError(
        f"expected the rows of {Path(path).name} to stay as they were, got a file that "
        "has changed since. Run again."
    )


def stamp_of(status: os.stat_result) -> tuple[int, int]:
    """Return size and time of change of a file."""
    return status.st_size, status.st_mtime_ns


def rows_in(
    paths: list[Path],
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    *,
    rows_per_file: int,
    offset: int = 0,
) -> DiskArray:
    """Return the array of rows in files that are there.

    Raises:
        OSError: a file cannot be found.
    """
    stamps = tuple(stamp_of(path.stat()) for path in paths)
    names = tuple(str(path.absolute()) for path in paths)
    rows = RowFiles(names, shape, dtype, offset, rows_per_file, stamps)
    return DiskArray(rows, dtype)


def npy_rows(path: Path) -> DiskArray | None:
    """Return the array of a `.npy` file, its rows not read.

    Returns:
        The array; None if it has no rows, is of no numbers, or is no such file.

    Raises:
        InputError: rows do not lie one behind another, or the file ends too early.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        try:
            read = _headers()[np.lib.format.read_magic(file)]
            shape, is_fortran, dtype = read(file)
        except (ValueError, KeyError):
            return None
        offset = file.tell()
    if len(shape) < 2 or not shape[0] or dtype.kind not in "fiub":
        return None
    if is_fortran:
        raise InputError(
            f"expected rows one behind another in {path.name}, to be read as they are "
            "needed, got columns. Save it by np.save(path, np.ascontiguousarray(x))."
        )
    expected = offset + math.prod(shape) * dtype.itemsize
    if (size := path.stat().st_size) < expected:
        raise InputError(
            f"expected the {shape[0]} rows that the head of {path.name} states, "
            f"{expected} bytes, got {size}: it ends too early. Copy or save it again."
        )
    return rows_in([path], shape, dtype, rows_per_file=shape[0], offset=offset)


def byte_rows(path: Path) -> DiskArray:
    """Return the bytes of a file, none of them read.

    Raises:
        OSError: it cannot be found.
    """
    size = path.stat().st_size
    return rows_in([path], (size,), np.dtype(np.uint8), rows_per_file=max(1, size))


def _headers() -> Mapping[tuple[int, int], Callable[[BinaryIO], Any]]:
    """Return what reads the head of a `.npy` file, by its version."""
    forms = np.lib.format
    return {(1, 0): forms.read_array_header_1_0, (2, 0): forms.read_array_header_2_0}
