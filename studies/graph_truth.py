"""Numbers of trees by determinants, and densities and shares at points."""

import numpy as np

import curvflow
from curvflow.tasks.numerics import components


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


# Far into the gap, at its ends, and in the bulk.
POINTS = (0.1, 0.5, 0.9, 1.3, 1.7)


@curvflow.stage(
    "probe.density_at",
    version=1,
    outputs=[
        curvflow.Variable(name, what, ("point",))
        for name, what in (
            ("at", "density at five points"),
            ("at_low", "lower end of its interval"),
            ("at_high", "upper end"),
        )
    ],
)
def density_at(density: curvflow.Density) -> dict[str, np.ndarray]:
    """Take a density at the points of the grid that are nearest to five."""
    near = [np.abs(density["grid"] - point).argmin() for point in POINTS]
    return {f"at{end}": density[f"density{end}"][near] for end in ("", "_low", "_high")}


@curvflow.stage(
    "probe.share_below",
    version=1,
    outputs=[
        curvflow.Variable(name, what, ("point",))
        for name, what in (
            ("below", "share of the eigenvalues below five points"),
            ("below_low", "its lower bound"),
            ("below_high", "its upper bound"),
        )
    ],
)
def share_below(shares: curvflow.Distribution) -> dict[str, np.ndarray]:
    """Take a distribution function at the points of the grid nearest to five."""
    near = [np.abs(shares["grid"] - point).argmin() for point in POINTS]
    ends = ("", "_low", "_high")
    return {f"below{end}": shares[f"cumulative{end}"][near] for end in ends}


@curvflow.stage(
    "probe.counted_below",
    version=1,
    outputs=[
        curvflow.Variable("below", "share of the eigenvalues below them", ("point",))
    ],
)
def counted_below(
    ritz: curvflow.Ritz, shares: curvflow.Distribution
) -> dict[str, np.ndarray]:
    """Count the eigenvalues below the points that `share_below` takes."""
    grid, values = shares["grid"], np.sort(ritz["ritz_values"].ravel())
    near = [np.abs(grid - point).argmin() for point in POINTS]
    return {"below": np.searchsorted(values, grid[near]) / len(values)}
