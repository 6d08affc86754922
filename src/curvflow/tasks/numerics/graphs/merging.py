"""Entries of files, merged into the rows of an undirected graph."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


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
