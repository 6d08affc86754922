"""Compressed rows of undirected graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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


def symmetric_rows(size: int, sources: Array, targets: Array) -> Rows:
    """Return the compressed rows of edges that are given once each.

    Args:
        size: nodes, D.
        sources: one end of each edge, (E,), from 0 to D - 1.
        targets: the other, (E,); the same node for a loop.

    Returns:
        The rows; time and memory are O(D + E).
    """
    from scipy import sparse

    apart = sources != targets  # a loop has one entry
    heads = np.concatenate([sources, targets[apart]]).astype(np.int32)
    tails = np.concatenate([targets, sources[apart]]).astype(np.int32)
    values = np.ones(len(heads), dtype=np.int8)
    rows = sparse.coo_array((values, (heads, tails)), shape=(size, size)).tocsr()
    rows.sort_indices()
    return Rows(rows.indptr.astype(np.int64), rows.indices.astype(np.int32))
