"""Spectra as weighted points and smoothed densities, and random-matrix laws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.figures import KestenMcKay, Law, Semicircle
from curvflow.schemas.nodes import Array, NodeData

MAX_EIGENVALUES = 4000  # rows of a matrix up to which all eigenvalues are computed
DENSE = "probe.dense"  # the kind whose Ritz values are all eigenvalues


@dataclass(frozen=True)
class WeightedPoints:
    """A spectrum as points with weights.

    Attributes:
        values: eigenvalues, Ritz values or a diagonal, ascending.
        weights: fraction of the spectrum at each value; their sum is 1, less what is
            known apart.
    """

    values: Array
    weights: Array

    @property
    def ends(self) -> tuple[float, float]:
        """Least and greatest value."""
        return float(self.values[0]), float(self.values[-1])


def ritz_points(nodes: Sequence[NodeData]) -> WeightedPoints:
    """Return the Ritz values of all runs of several nodes, with equal weight per run.

    Args:
        nodes: Ritz data of nodes that did not diverge.

    Returns:
        The points, without eigenvalues that were taken out.
    """
    values = np.concatenate([node["ritz_values"].ravel() for node in nodes])
    runs = sum(len(node["ritz_values"]) for node in nodes)
    parts = [node["ritz_weights"].ravel() * rest_share(node) for node in nodes]
    weights = np.concatenate(parts) / runs
    is_finite = np.isfinite(values)
    order = np.argsort(values[is_finite], kind="stable")
    return WeightedPoints(values[is_finite][order], weights[is_finite][order])


def rest_share(node: NodeData) -> float:
    """Return the fraction of the eigenvalues that were not taken out as atoms."""
    if "atom_counts" not in node:
        return 1.0
    return 1 - float(node["atom_counts"].sum()) / float(node["size"])


def atom_points(nodes: Sequence[NodeData]) -> WeightedPoints:
    """Return the eigenvalues that were taken out of several spectra.

    Args:
        nodes: Ritz data, or densities of the rest, weighed by their runs.

    Returns:
        The points, each value once.
    """
    runs = [len(node["ritz_values"]) if "ritz_values" in node else 1 for node in nodes]
    values, weights = [np.zeros(0)], [np.zeros(0)]
    for node, count in zip(nodes, runs, strict=True):
        if "atom_counts" in node:
            values.append(node["atom_values"])
            weights.append(
                node["atom_counts"] / float(node["size"]) * count / sum(runs)
            )
    each, at = np.unique(np.concatenate(values), return_inverse=True)
    return WeightedPoints(each, np.bincount(at, np.concatenate(weights), len(each)))


def atom_heights(points: WeightedPoints, width: float) -> Array:
    """Return how high Gaussians of a width make each point at its own value."""
    heights: Array = points.weights / (width * np.sqrt(2 * np.pi))
    return heights


def matrix_points(node: NodeData, what: str) -> WeightedPoints:
    """Return all eigenvalues of a matrix, or its diagonal.

    Args:
        node: the matrix.
        what: `eigenvalues` or `diagonal`.

    Returns:
        The points, of equal weights.

    Raises:
        InputError: the matrix is not dense, or too large for its eigenvalues.
    """
    if str(node["form"]) != "dense":
        raise InputError(
            f"matrix: expected the form dense, got {node['form']}. Leave `compare` "
            "empty."
        )
    matrix = node["dense"]
    size = len(matrix)
    if what == "eigenvalues" and size > MAX_EIGENVALUES:
        raise InputError(
            f"compare: expected at most {MAX_EIGENVALUES} rows for eigenvalues, got "
            f"{size}. Take the diagonal, or an overlay."
        )
    values = np.linalg.eigvalsh(matrix) if what == "eigenvalues" else np.diag(matrix)
    return WeightedPoints(np.sort(values), np.full(size, 1 / size))


def nodes_with_equal_labels(
    node: NodeData, others: Sequence[NodeData]
) -> list[NodeData]:
    """Return the others whose labels agree with a node's on all common axes."""
    shared = [axis for axis in others[0].coords if axis in node.coords]
    return [
        other
        for other in others
        if all(other.coords[axis] == node.coords[axis] for axis in shared)
    ]


def smoothed_density(points: WeightedPoints, grid: Array, width: float) -> Array:
    """Return a density smoothed by a Gaussian kernel at each weighted point.

    Args:
        points: the spectrum.
        grid: eigenvalues at which to take the density, (G,).
        width: standard deviation of the Gaussians.

    Returns:
        The density, (G,).

    Reference:
        Lin, Saad and Yang (2016), doi:10.1137/130934283, section 3.2.3.
    """
    density = np.zeros(len(grid))
    # In chunks, as a matrix may have thousands of eigenvalues.
    for start in range(0, len(points.values), 512):
        chunk = slice(start, start + 512)
        scaled = (grid - points.values[chunk, None]) / width
        density += points.weights[chunk] @ np.exp(-(scaled**2) / 2)
    density /= width * np.sqrt(2 * np.pi)
    return density


def runs_sentence(nodes: Sequence[NodeData]) -> str:
    """Return the source of values as text: Lanczos runs or dense matrices.

    Args:
        nodes: Ritz data.

    Returns:
        Such as `Ritz values of 2 Lanczos runs of 30 steps at each of 3 nodes`, or `All
        eigenvalues of 1 dense matrix of 45 rows`, or both.
    """
    dense = [node for node in nodes if node.kind == DENSE]
    lanczos = [node for node in nodes if node.kind != DENSE]
    parts = []
    if lanczos or not nodes:
        parts.append(f"Ritz values of {_counted(lanczos, 'Lanczos run', 'steps')}")
    if dense:
        parts.append(f"all eigenvalues of {_counted(dense, 'dense matrix', 'rows')}")
    text = ", and ".join(parts)
    return text[0].upper() + text[1:]


def _counted(nodes: Sequence[NodeData], what: str, length: str) -> str:
    plural = "matrices" if what.endswith("matrix") else "runs"
    many = f"{what.rpartition(' ')[0]} {plural}"
    if not nodes:
        return f"no {many}"
    shapes = [node["ritz_values"].shape for node in nodes]
    runs, sizes = ({shape[axis] for shape in shapes} for axis in (0, 1))
    noun = what if runs == {1} else many
    text = f"{_join_numbers(runs)} {noun} of {_join_numbers(sizes)} {length}"
    # Runs share a matrix, nodes do not.
    return text if len(nodes) == 1 else f"{text} at each of {len(nodes)} nodes"


def _join_numbers(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def law_support(law: Law) -> tuple[float, float]:
    """Return the ends of the continuous part of a law."""
    if isinstance(law, Semicircle):
        return -law.radius, law.radius
    if isinstance(law, KestenMcKay):
        ends = [
            _of_adjacency(law, sign * 2 * (law.degree - 1) ** 0.5) for sign in (-1, 1)
        ]
        return min(ends), max(ends)
    root = law.ratio**0.5
    return law.variance * (1 - root) ** 2, law.variance * (1 + root) ** 2


def _of_adjacency(law: KestenMcKay, x: float) -> float:
    """Return the eigenvalue of a regular graph's matrix from that of its adjacency."""
    x = x / law.degree if law.operator.startswith("normalized") else x
    if law.operator.endswith("adjacency"):
        return x
    return (1 if law.operator == "normalized_laplacian" else law.degree) - x


def law_atom(law: Law) -> float:
    """Return the weight of a law's atom at zero."""
    if isinstance(law, Semicircle | KestenMcKay):
        return 0.0
    return max(0.0, 1 - 1 / law.ratio)


def law_name(law: Law) -> str:
    """Return the name of a law with its parameter."""
    if isinstance(law, Semicircle):
        return "semicircle"
    if isinstance(law, KestenMcKay):
        return f"Kesten-McKay, d = {law.degree}"
    return f"Marchenko-Pastur, q = {law.ratio:g}"


def law_density(law: Law, x: Array) -> Array:
    """Return the density of a law without its atom at zero.

    Args:
        law: the law with its parameters.
        x: eigenvalues at which to take the density.

    Returns:
        The density, 0 outside the support; its integral is 1 minus the atom.

    Reference:
        Wigner (1958), doi:10.2307/1970008. Marchenko and Pastur (1967),
        doi:10.1070/SM1967v001n04ABEH001994. McKay (1981),
        doi:10.1016/0024-3795(81)90150-6, Theorem 1.1.
    """
    low, high = law_support(law)
    inside = np.sqrt(np.clip((x - low) * (high - x), 0, None))
    if isinstance(law, Semicircle):
        return 2 / (np.pi * law.radius**2) * inside
    if isinstance(law, KestenMcKay):
        d, middle = law.degree, (low + high) / 2
        # d y is an eigenvalue of the adjacency, away from the middle.
        unit = (high - low) / (4 * (d - 1) ** 0.5) * d
        y = np.where(inside > 0, (x - middle) / unit, 0)
        density: Array = inside / unit**2 * d / (2 * np.pi * (1 - y**2))
        return density
    below = 2 * np.pi * law.variance * law.ratio * np.where(inside > 0, x, 1)
    return inside / below
