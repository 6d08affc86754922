"""Graphs beside what is known of them, for the studies of chapter 3.

The count of clusters that random vectors give where the true eigenvectors are known; a
density beside all eigenvalues; the least distance of each law of random graphs.
"""

import numpy as np
from pydantic import Field

import curvflow
from curvflow.tasks.numerics import random_vectors

LAWS = ("erdos_renyi", "watts_strogatz", "barabasi_albert")


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


class Fit(curvflow.Params):
    """What is an end of the spectrum, and how wide bins are."""

    tail: float = Field(0.01, gt=0, lt=0.5, description="share beyond either end")
    bins: int = Field(50, ge=2, description="bins of the histogram over the support")


@curvflow.stage(
    "probe.fit",
    version=1,
    outputs=[
        curvflow.Variable("low", "eigenvalue that the tail lies below"),
        curvflow.Variable("high", "that the other tail lies above"),
        curvflow.Variable("outside", "mass of the density beyond, less the true share"),
        curvflow.Variable("misfit", "half the mass that differs from the histogram"),
        curvflow.Variable(
            "ripple", "largest rise of the density away from its peak, between the ends"
        ),
        curvflow.Variable("peak", "share of the eigenvalues within 0.01 of 1"),
        curvflow.Variable("peak_error", "mass of the density there, less it"),
    ],
)
def fit(
    density: curvflow.Density, spectrum: curvflow.Ritz, params: Fit
) -> dict[str, float]:
    """Compare the support, the shape, the ripples and the centre with the truth."""
    values = np.sort(spectrum["ritz_values"][np.isfinite(spectrum["ritz_values"])])
    low, high = np.quantile(values, [params.tail, 1 - params.tail])
    grid, curve = density["grid"], density["density"]
    cumulative = np.append(0, np.cumsum(np.diff(grid) * (curve[1:] + curve[:-1]) / 2))
    cumulative /= cumulative[-1]

    def masses(ends: np.ndarray) -> np.ndarray:
        return np.diff(np.interp(ends, grid, cumulative))

    edges = np.linspace(grid[0], grid[-1], params.bins + 1)
    counts, _ = np.histogram(values.clip(grid[0], grid[-1]), edges)
    between = curve[(grid >= low) & (grid <= high)]
    top = int(between.argmax())
    sides = (between[top::-1], between[top:])
    centre = np.array([0.99, 1.01])
    peak = float(((values > centre[0]) & (values < centre[1])).mean())
    true_share = float(((values >= low) & (values <= high)).mean())
    return {
        "low": float(low),
        "high": float(high),
        "outside": true_share - float(masses(np.array([low, high]))[0]),
        "misfit": float(np.abs(masses(edges) - counts / len(values)).sum() / 2),
        "ripple": max(float((s - np.minimum.accumulate(s)).max()) for s in sides),
        "peak": peak,
        "peak_error": float(masses(centre)[0]) - peak,
    }


class Plain(curvflow.Params):
    """No settings."""


@curvflow.stage(
    "probe.laws",
    version=1,
    outputs=[
        *(curvflow.Variable(law, "least distance of its graphs") for law in LAWS),
        curvflow.Variable(
            "margin", "by how much the others are farther than the last of them"
        ),
    ],
)
def laws(distances: curvflow.Numbers, params: Plain) -> dict[str, float]:
    """Take the least distance of the stage named after each law."""
    names = np.array([str(label).partition(",")[0] for label in distances["label"]])
    least = {law: float(distances["distance"][names == law].min()) for law in LAWS}
    *others, last = least.values()
    return {**least, "margin": min(others) - last}


@curvflow.stage(
    "probe.resolved",
    version=1,
    outputs=[
        curvflow.Variable("gap", "1 where a count says that there is one, else 0"),
        curvflow.Variable("count", "what it counts; NaN without a gap"),
        curvflow.Variable("width", "of the gap, or of the widest interval"),
    ],
)
def resolved(counted: curvflow.Numbers, params: Plain) -> dict[str, float]:
    """Return a verdict as a number, that it can be expected."""
    return {
        "gap": float(str(counted["verdict"]) == "gap"),
        "count": float(counted["count"]),
        "width": float(counted["gap_high"] - counted["gap_low"]),
    }


@curvflow.stage(
    "probe.algorithm_5",
    version=1,
    outputs=[
        curvflow.Variable("count", "n times the mass below the minimum"),
        curvflow.Variable("minimum", "where the density is least, below its median"),
    ],
)
def algorithm_5(density: curvflow.Density, params: Plain) -> dict[str, float]:
    """Count clusters by the deepest minimum, whether or not there is a gap."""
    grid, curve = density["grid"], density["density"]
    cumulative = np.append(0, np.cumsum(np.diff(grid) * (curve[1:] + curve[:-1]) / 2))
    cumulative /= cumulative[-1]
    least = int(curve[cumulative < 0.5].argmin())
    return {
        "count": float(density["size"]) * float(cumulative[least]),
        "minimum": float(grid[least]),
    }
