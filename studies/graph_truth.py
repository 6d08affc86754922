"""Numbers of spanning trees by determinants, the truth of `graph-coverage.yaml`."""

import numpy as np

import curvflow
from curvflow.tasks.numerics.graphs.structure import components


@curvflow.stage(
    "probe.trees",
    version=1,
    outputs=[curvflow.Variable("log_trees", "of all components, by their minors")],
)
def trees(graph: curvflow.Graph) -> dict[str, float]:
    """Apply Kirchhoff's matrix-tree theorem to each component."""
    size, indptr, indices = int(graph["size"]), graph["indptr"], graph["indices"]
    laplacian = np.zeros((size, size))
    laplacian[np.repeat(np.arange(size), np.diff(indptr)), indices] = -1
    np.fill_diagonal(laplacian, -laplacian.sum(1))
    labels = components(indptr, indices)
    firsts = np.unique(labels, return_index=True)[1]
    rest = np.setdiff1d(np.arange(size), firsts)
    return {"log_trees": float(np.linalg.slogdet(laplacian[np.ix_(rest, rest)])[1])}
