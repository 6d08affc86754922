"""Variables that every kind of graph data returns."""

from __future__ import annotations

import numpy as np

from curvflow.schemas.kind import Variable
from curvflow.schemas.nodes import Array

MOST_NODES = 2**31 - 1  # that neighbours in int32 can name

GRAPH_OUTPUTS = (
    Variable("indptr", "where each row begins", ("row_end",), dtype="int64", bulk=True),
    Variable(
        "indices", "neighbours of each node", ("entry",), dtype="int32", bulk=True
    ),
    Variable("weights", "of the entries; none if all are 1", ("weight",), bulk=True),
    Variable("size", "nodes, D", dtype="int64"),
    Variable("num_edges", "edges, each counted once", dtype="int64"),
)


def graph(
    indptr: Array, indices: Array, weights: Array | None = None
) -> dict[str, Array]:
    """Return the variables of `GRAPH_OUTPUTS`.

    Args:
        indptr: where each row begins, (D + 1,).
        indices: neighbours of each node in rising order, (E,); an edge stands in the
            rows of both its ends, a loop once in its own.
        weights: of these entries; None where all are 1.

    Returns:
        Those of the smallest types that hold them.
    """
    size = len(indptr) - 1
    loops = sum(
        int(np.count_nonzero(_rows(indptr, start) == indices[_entries(indptr, start)]))
        for start in range(0, size, ROWS)
    )
    return {
        "indptr": indptr.astype(np.int64, copy=False),
        "indices": indices.astype(np.int32, copy=False),
        "weights": np.zeros(0) if weights is None else weights.astype(np.float64),
        "size": np.array(size, dtype=np.int64),
        "num_edges": np.array((len(indices) + loops) // 2, dtype=np.int64),
    }


ROWS = 1 << 18  # looked at together, which bounds memory


def _rows(indptr: Array, start: int) -> Array:
    """Return the row of each entry of some rows, from `start` on."""
    counts = np.diff(indptr[start : start + ROWS + 1])
    return np.repeat(np.arange(start, start + len(counts), dtype=np.int32), counts)


def _entries(indptr: Array, start: int) -> slice:
    """Return the entries of the same rows."""
    return slice(indptr[start], indptr[min(start + ROWS, len(indptr) - 1)])
