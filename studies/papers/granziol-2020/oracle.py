"""The count of clusters that random vectors give where the true eigenvectors are known.

`table-3.2.yaml` uses it.
"""

import numpy as np
from pydantic import Field

import curvflow
from curvflow.tasks.numerics.estimators.traces import random_vectors


class Oracle(curvflow.Params):
    """The same vectors as those of a `probe.spectrum` with this seed."""

    clusters: int = Field(ge=1, description="lowest eigenvectors, n_c")
    num_runs: int = Field(ge=1, description="vectors, d")
    seed: int = Field(0, ge=0, description="of the vectors")


@curvflow.stage(
    "probe.oracle",
    version=1,
    outputs=[
        curvflow.Variable("count", "n times the mean weight of the vectors in them"),
        curvflow.Variable("noise", "relative standard deviation of it, by theory"),
        curvflow.Variable("gap", "between the eigenvalues n_c and n_c + 1"),
    ],
)
def oracle(graph: curvflow.Graph, params: Oracle) -> dict[str, float]:
    """Project the vectors on the true eigenvectors of the normalized Laplacian."""
    size, indptr = int(graph["size"]), graph["indptr"]
    entries = np.zeros((size, size))
    entries[np.repeat(np.arange(size), np.diff(indptr)), graph["indices"]] = 1
    root = np.sqrt(entries.sum(1).clip(1))
    values, vectors = np.linalg.eigh(np.eye(size) - entries / root / root[:, None])
    lowest = vectors[:, : params.clusters]
    rows = range(params.num_runs)
    draws = random_vectors([params.seed], size, rows, "rademacher")[0].numpy()
    # Entries of the vectors are 1 and -1, so that their squared length is the size.
    count = float(((lowest.T @ draws) ** 2).sum(0).mean())
    spread = 2 * (1 - params.clusters / size) / (params.clusters * params.num_runs)
    return {
        "count": count,
        "noise": spread**0.5,
        "gap": float(values[params.clusters] - values[params.clusters - 1]),
    }


class Clusters(curvflow.Params):
    """How many clusters there are."""

    clusters: int = Field(ge=1, description="n_c")


@curvflow.stage(
    "probe.planted",
    version=1,
    outputs=[curvflow.Variable("count", "clusters that were planted")],
)
def planted(graph: curvflow.Graph, params: Clusters) -> dict[str, float]:
    """Return the truth."""
    return {"count": float(params.clusters)}


@curvflow.stage(
    "probe.distance",
    version=1,
    outputs=[curvflow.Variable("distance", "of a count from the oracle's, over n_c")],
)
def distance(
    counted: curvflow.Numbers, oracle: curvflow.Numbers, params: Clusters
) -> dict[str, float]:
    """Compare a method with the oracle, whose vectors it shares."""
    apart = abs(float(counted["count"]) - float(oracle["count"]))
    return {"distance": apart / params.clusters}
