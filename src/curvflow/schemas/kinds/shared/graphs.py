"""What every kind of graph data returns."""

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
    rows = np.repeat(np.arange(size, dtype=indices.dtype), np.diff(indptr))
    loops = int((rows == indices).sum())
    return {
        "indptr": indptr.astype(np.int64),
        "indices": indices.astype(np.int32),
        "weights": np.zeros(0) if weights is None else weights.astype(np.float64),
        "size": np.array(size, dtype=np.int64),
        "num_edges": np.array((len(indices) + loops) // 2, dtype=np.int64),
    }
