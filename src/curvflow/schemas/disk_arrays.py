"""Arrays that stay on disk, of which rows are read when they are needed.

A data set larger than memory passes from its file through the store to what is computed
as such arrays. Their digests are those of the same arrays in memory.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol, cast

import numpy as np

from curvflow.schemas.nodes import Array

# What is read at once where all of an array is gone through.
BLOCK_BYTES = 8 << 20


class RowReader(Hashable, Protocol):
    """Rows of an array on disk; equal and hashable where the content is the same."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the whole array."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the type of the rows."""

    def read(self, numbers: Array) -> Array:
        """Return rows by their numbers, in any order.

        Raises:
            InputError: the file has changed or ends too early.
        """


@dataclass(frozen=True, eq=False)
class DiskArray:
    """An array on disk; a slice or numbers of rows are read, `np.asarray` reads all.

    Attributes:
        reader: rows of the file.
        dtype: what they are turned into.
        chosen: rows of the file that are rows of this array, in order; None for all.
    """

    reader: RowReader
    dtype: np.dtype[Any]
    chosen: Array | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""
        count = self.reader.shape[0] if self.chosen is None else len(self.chosen)
        return (count, *self.reader.shape[1:])

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array in memory, where it is not."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.shape[0]

    def __getitem__(self, rows: slice | Array) -> Array:
        """Read some rows, by a slice or by their numbers."""
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        numbers = rows if self.chosen is None else self.chosen[rows]
        return self.reader.read(numbers).astype(self.dtype, copy=False)

    def __array__(
        self, dtype: np.dtype[Any] | None = None, copy: bool | None = None
    ) -> Array:
        """Read all rows."""
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)

    def of(self, rows: Array) -> DiskArray:
        """Return the array of some rows, none of them read."""
        return replace(self, chosen=rows if self.chosen is None else self.chosen[rows])

    def astype(self, dtype: np.dtype[Any]) -> DiskArray:
        """Return the array of another type, none of it read."""
        return replace(self, dtype=dtype)

    def blocks(self, rows: int | None = None) -> Iterator[Array]:
        """Read all rows, some at a time.

        Args:
            rows: how many; by default as many as fill `BLOCK_BYTES`.

        Yields:
            The blocks, in order.
        """
        each = max(1, self.nbytes // max(1, len(self)))
        step = rows or max(1, BLOCK_BYTES // each)
        for start in range(0, len(self), step):
            yield self[start : start + step]

    def min(self, initial: float) -> Any:
        """Return the least entry, and no more than `initial`."""
        return min([initial, *(block.min() for block in self.blocks())])

    def max(self, initial: float) -> Any:
        """Return the largest entry, and no less than `initial`."""
        return max([initial, *(block.max() for block in self.blocks())])

    def num_not_finite(self) -> int:
        """Return how many entries of the file are NaN or infinite."""
        return _num_not_finite(self.reader)


@lru_cache(maxsize=16)
def _num_not_finite(reader: RowReader) -> int:
    if reader.dtype.kind in "iub":
        return 0
    blocks = DiskArray(reader, reader.dtype).blocks()
    return int(sum(block.size - np.isfinite(block).sum() for block in blocks))


@dataclass(frozen=True, eq=False)
class JoinedRows:
    """Rows of several arrays side by side, of which some are on disk.

    Attributes:
        parts: each of shape (N, ...).
        dtype: of the rows read.
    """

    parts: tuple[Array, ...]
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return rows, and numbers of all parts together."""
        return len(self.parts[0]), sum(map(_row_size, self.parts))

    def read(self, numbers: Array) -> Array:
        """Return rows by their numbers, in any order.

        Raises:
            InputError: a file has changed or ends too early.
        """
        return np.concatenate(
            [
                part[numbers].reshape(len(numbers), _row_size(part)).astype(self.dtype)
                for part in self.parts
            ],
            axis=1,
        )


def _row_size(array: Array) -> int:
    return math.prod(array.shape[1:])


def in_memory(array: Array) -> Array:
    """Return an array whose entries are all read."""
    return np.asarray(array) if isinstance(array, DiskArray) else array


def is_on_disk(array: object) -> bool:
    """Return whether an array's rows are read when they are needed."""
    return isinstance(array, DiskArray)


def rows_of(array: Array, numbers: Array) -> Array:
    """Return some rows of an array; of one on disk none are read."""
    if isinstance(array, DiskArray):
        return as_array(array.of(numbers))
    return array[numbers]


def as_array(array: DiskArray) -> Array:
    """Return an array on disk where the type of one in memory is declared."""
    return cast("Array", array)
