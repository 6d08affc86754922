"""Compressed rows of undirected graphs, and entries of files merged into them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Rows:
    """The neighbours of each node, every edge in the rows of both its ends.

    Attributes:
        indptr: where each row begins, (D + 1,), int64.
        indices: neighbours in rising order, int32; a loop stands once in its row.
    """

    indptr: Array
    indices: Array


# Entries that are looked at together, which bounds memory.
CHUNK = 1 << 18


def symmetric_rows(size: int, sources: Array, targets: Array) -> Rows:
    """Return the compressed rows of edges that are given once each.

    Args:
        size: nodes, D, at most 2^31.
        sources: one end of each edge, (E,), from 0 to D - 1.
        targets: the other, (E,); the same node for a loop.

    Returns:
        The rows; time is that of sorting, and memory 16 bytes for each edge and the
        edges, of which the rows keep 8.
    """
    entries = _entries(size, sources, targets)
    entries.sort()
    # Where each row begins is counted, as a search for it would jump.
    counts = np.zeros(size + 1, dtype=np.int64)
    for part in _parts(len(entries)):
        rows = entries[part] // size
        first, last = int(rows[0]), int(rows[-1])
        counts[first + 1 : last + 2] += np.bincount(rows - first)
    return Rows(np.cumsum(counts, out=counts), _columns(size, entries))


def _entries(size: int, sources: Array, targets: Array) -> Array:
    """Return row times D plus column of each entry; a loop has one, an edge two."""
    num_loops = sum(
        int(np.count_nonzero(sources[part] == targets[part]))
        for part in _parts(len(sources))
    )
    entries = np.empty(2 * len(sources) - num_loops, dtype=np.int64)
    end = len(sources)
    for part in _parts(len(sources)):
        heads, tails = (ends[part].astype(np.int64) for ends in (sources, targets))
        entries[part] = heads * size + tails
        apart = heads != tails
        mirrored = tails[apart] * size + heads[apart]
        entries[end : end + len(mirrored)] = mirrored
        end += len(mirrored)
    return entries


def _columns(size: int, entries: Array) -> Array:
    """Return the columns of entries, int32, written over these."""
    count = len(entries)
    columns = entries.view(np.int32)
    for part in _parts(count):
        columns[part] = entries[part] % size  # never beyond what has been read
    del columns
    # No view is left; the second half goes back to the system.
    entries.resize((count + 1) // 2, refcheck=False)
    return entries.view(np.int32)[:count]


def _parts(count: int) -> Iterator[slice]:
    for start in range(0, count, CHUNK):
        yield slice(start, min(start + CHUNK, count))


def merged(
    size: int,
    sources: Array,
    targets: Array,
    weights: Array | None,
    repeated: Literal["sum", "once"],
) -> Any:
    """Return the matrix of entries, the repeated ones of a place made one.

    Args:
        size: nodes, D.
        sources: row of each entry, (E,).
        targets: column of each, (E,).
        weights: of these, positive; None for 1 each.
        repeated: `sum` their weights, or count them `once`, with the largest.

    Returns:
        A SciPy matrix in compressed rows, columns rising; time and memory are O(D + E),
        but for the largest weights, which are sorted.
    """
    from scipy import sparse

    if weights is None:
        counts = np.ones(len(sources), np.int32)
        matrix = sparse.coo_array((counts, (sources, targets)), (size, size)).tocsr()
        if repeated == "once":
            matrix.data[:] = 1
        return matrix
    if repeated == "once" and len(sources):
        keys = sources.astype(np.int64) * size + targets
        order = np.argsort(keys, kind="stable")
        begins = np.flatnonzero(np.diff(keys[order], prepend=-1))
        weights = np.maximum.reduceat(weights[order], begins)
        chosen = order[begins]
        sources, targets = sources[chosen], targets[chosen]
    return sparse.coo_array((weights, (sources, targets)), (size, size)).tocsr()


def one_sided(matrix: Any, tol: float = 1e-12) -> tuple[int, int] | None:
    """Return the first entry whose mirror image differs from it; None if none does.

    Args:
        matrix: SciPy's, in compressed rows.
        tol: relative difference of weights that are alike.
    """
    difference = (matrix - matrix.T.tocsr()).tocoo()
    differs = np.abs(difference.data) > tol * np.abs(matrix.data).max(initial=0)
    if not differs.any():
        return None
    at = int(np.argmax(differs))
    return int(difference.row[at]), int(difference.col[at])


def num_mirrored(matrix: Any) -> int:
    """Return how many entries off the diagonal have a mirror image."""
    pattern = matrix.astype(bool)
    both = pattern.multiply(pattern.T.tocsr())
    return int(both.nnz - np.count_nonzero(both.diagonal()))


def largest_component(matrix: Any) -> Array:
    """Return the nodes of the largest component, rising.

    Args:
        matrix: symmetric, SciPy's; of equal components that of the first node counts.
    """
    from scipy.sparse import csgraph

    _, labels = csgraph.connected_components(matrix, directed=False)
    return np.flatnonzero(labels == np.argmax(np.bincount(labels)))
