"""Nodes that are known by the ends of edges alone: integers, or else names."""

from __future__ import annotations

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.nodes import Array
from curvflow.tasks.datasets.graph_files.blocks import Cells, integers

# A name takes as much memory as the longest.
LONGEST_NAME = 200
INT32 = np.iinfo(np.int32)


class NodeNames:
    """Ends of edges as they come, and the nodes that these are.

    They are integers as long as all of them are; with the first that is none, all are
    names.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._blocks: list[Array] = []
        self._known: dict[bytes, int] | None = None

    def add(self, sources: Cells, targets: Cells) -> None:
        """Add edges.

        Args:
            sources: the end that each begins at.
            targets: the other.

        Raises:
            InputError: a name is empty or too long.
        """
        both = sources, targets
        if self._known is None:
            read = [integers(cells) for cells in both]
            if all(sound.all() for _, sound in read):
                self._blocks.append(_small(np.stack([values for values, _ in read])))
                return
            self._name_all()
        assert self._known is not None
        for cells in both:
            _check_lengths(cells)
        numbers = [self._numbered(cells.bytes()) for cells in both]
        self._blocks.append(np.array(numbers, np.int32))

    def nodes(self) -> tuple[Array, Array]:
        """Return the numbers or names of the nodes, rising, and the ends of all edges.

        Returns:
            Names, (D,), and positions among them, (2, E).

        Raises:
            InputError: names are no text in UTF-8.
        """
        ends = np.concatenate(self._blocks, axis=1) if self._blocks else _NONE
        self._blocks.clear()
        return compressed(ends) if self._known is None else self._sorted(ends)

    def _numbered(self, names: list[bytes]) -> list[int]:
        known = self._known
        assert known is not None
        return [known.setdefault(name, len(known)) for name in names]

    def _name_all(self) -> None:
        """Turn the integers so far into names."""
        self._known = {}
        for at, block in enumerate(self._blocks):
            values, places = np.unique(block, return_inverse=True)
            names = [str(value).encode() for value in values.tolist()]
            numbers = np.array(self._numbered(names), np.int32)
            self._blocks[at] = numbers[places.reshape(block.shape)]

    def _sorted(self, ends: Array) -> tuple[Array, Array]:
        assert self._known is not None
        ordered = sorted(self._known)
        try:
            names = np.array([name.decode() for name in ordered])
        except UnicodeDecodeError as error:
            raise InputError(
                f"path: expected names in UTF-8, got the byte "
                f"{error.object[error.start]:#04x}. Write the file in UTF-8."
            ) from error
        rank = np.empty(len(ordered), np.int32)
        rank[[self._known[name] for name in ordered]] = np.arange(len(ordered))
        return names, rank[ends]


_NONE = np.zeros((2, 0), np.int64)


def compressed(ends: Array) -> tuple[Array, Array]:
    """Number the integers that occur.

    Args:
        ends: integers of any size and shape.

    Returns:
        Those that occur, rising, (D,) int64, and the position of each of `ends`.
    """
    if not ends.size:
        return np.zeros(0, np.int64), ends
    least, span = int(ends.min()), int(ends.max()) - int(ends.min()) + 1
    if span > max(1 << 16, 8 * ends.size):
        numbers, places = np.unique(ends, return_inverse=True)
        return numbers.astype(np.int64), places.astype(np.int32).reshape(ends.shape)
    occurs = np.zeros(span, bool)
    occurs[ends - least] = True
    numbers = np.flatnonzero(occurs) + least
    if len(numbers) == span:
        return numbers, (ends - least).astype(np.int32)
    positions = np.cumsum(occurs, dtype=np.int32) - np.int32(1)
    return numbers, positions[ends - least]


def _small(values: Array) -> Array:
    if values.size and INT32.min <= values.min() and values.max() <= INT32.max:
        return values.astype(np.int32)
    return values


def _check_lengths(cells: Cells) -> None:
    lengths = cells.ends - cells.starts
    wrong = (lengths == 0) | (lengths > LONGEST_NAME)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(
            f"path: expected the name of a node, of 1 to {LONGEST_NAME} bytes, got "
            f"{cells.shown(at)}. Rename the node."
        )
