"""Components, sides and triangles of graphs in compressed rows.

Letters: D nodes, E entries of the compressed rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

# Paths of two edges looked at together, which bounds memory.
CHUNK = 1 << 20


def components(indptr: Array, indices: Array) -> Array:
    """Return the number of the component of each node, (D,), int32.

    Args:
        indptr: where each row begins, (D + 1,).
        indices: neighbours, (E,), an edge in the rows of both its ends.

    Examples:
        >>> import numpy as np
        >>> components(np.array([0, 1, 2, 2]), np.array([1, 0])).tolist()
        [0, 0, 1]
    """
    from scipy.sparse import csgraph

    # Of a symmetric pattern the strong components are the components, and SciPy finds
    # these without a transposed copy.
    _, labels = csgraph.connected_components(
        _pattern(indptr, indices), directed=True, connection="strong"
    )
    numbers: Array = labels
    return numbers


def _pattern(indptr: Array, indices: Array) -> Any:
    from scipy import sparse

    size = len(indptr) - 1
    ones = np.broadcast_to(np.float64(1), indices.shape)  # of no memory
    return sparse.csr_array((ones, indices, indptr), (size, size))


def is_bipartite(indptr: Array, indices: Array, labels: Array) -> bool:
    """Return whether nodes have two sides such that every edge joins these.

    Args:
        indptr: where each row begins, (D + 1,).
        indices: neighbours, (E,), an edge in the rows of both its ends.
        labels: of the components.
    """
    size = len(indptr) - 1
    # Two copies of each node, an edge between those of different ones: a component of
    # two sides falls in two.
    wide = indices.astype(np.int64 if 2 * size >= 2**31 else np.int32)
    doubled = components(
        np.concatenate([indptr, indptr[1:] + len(indices)]),
        np.concatenate([wide + size, wide]),
    )
    return int(doubled.max()) + 1 == 2 * (int(labels.max()) + 1)


def num_triangles(indptr: Array, indices: Array) -> int:
    """Return how many triples of nodes are all joined.

    Edges lead to the end of more neighbours, so that no node has more than the root of
    2 E of them, and time is O(E^1.5) at most.

    Args:
        indptr: where each row begins, (D + 1,).
        indices: neighbours, (E,), an edge in the rows of both its ends; loops count
            for nothing.

    Returns:
        The number of triangles.

    Reference:
        Chiba and Nishizeki (1985), doi:10.1137/0214017, for the order of the nodes.
    """
    from scipy import sparse

    counts = np.diff(indptr)
    rank = np.empty(len(counts), dtype=np.int32)
    rank[np.argsort(counts, kind="stable")] = np.arange(len(counts), dtype=np.int32)
    sources = np.repeat(rank, counts)
    targets = rank[indices]
    up = sources < targets
    ones = np.ones(int(up.sum()), dtype=np.int32)
    size = len(counts)
    onward = sparse.coo_array((ones, (sources[up], targets[up])), (size, size)).tocsr()
    out = np.diff(onward.indptr)
    paths = np.concatenate([[0], np.cumsum(out[onward.indices], dtype=np.int64)])
    ends = paths[onward.indptr]  # of rows
    total, start = 0, 0
    while start < size:
        stop = int(np.searchsorted(ends, ends[start] + CHUNK, side="right")) - 1
        stop = max(stop, start + 1)
        chunk = onward[start:stop]
        total += int((chunk @ onward).multiply(chunk).sum())
        start = stop
    return total
