"""Spectra as figures show them, and the laws of random matrices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.figures import Law, Semicircle
from curvflow.schemas.nodes import Array, NodeData

MOST_EIGENVALUES = 4000  # rows of a matrix whose eigenvalues are all computed
DENSE = "probe.dense"  # whose Ritz values are all eigenvalues


@dataclass(frozen=True)
class Points:
    """A spectrum as points with weights.

    Attributes:
        values: eigenvalues or what stands for them, ascending.
        weights: share of the spectrum at each; their sum is 1.
    """

    values: Array
    weights: Array

    @property
    def ends(self) -> tuple[float, float]:
        """Least and greatest value."""
        return float(self.values[0]), float(self.values[-1])


def ritz_points(nodes: Sequence[NodeData]) -> Points:
    """Return the Ritz values of all runs of several nodes, each run of equal weight.

    Args:
        nodes: Ritz data; none of them diverged.

    Returns:
        The points.
    """
    values = np.concatenate([node["ritz_values"].ravel() for node in nodes])
    runs = sum(len(node["ritz_values"]) for node in nodes)
    weights = np.concatenate([node["ritz_weights"].ravel() for node in nodes]) / runs
    there = np.isfinite(values)
    order = np.argsort(values[there], kind="stable")
    return Points(values[there][order], weights[there][order])


def matrix_points(node: NodeData, what: str) -> Points:
    """Return all eigenvalues of a matrix, or its diagonal in their place.

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
            f"matrix: expected one whose form is dense, got {node['form']}. Leave "
            "`compare` empty."
        )
    matrix = node["dense"]
    size = len(matrix)
    if what == "eigenvalues" and size > MOST_EIGENVALUES:
        raise InputError(
            f"compare: expected at most {MOST_EIGENVALUES} rows for eigenvalues, got "
            f"{size}. Take the diagonal, or an overlay."
        )
    found = np.linalg.eigvalsh(matrix) if what == "eigenvalues" else np.diag(matrix)
    return Points(np.sort(found), np.full(size, 1 / size))


def agreeing(node: NodeData, others: Sequence[NodeData]) -> list[NodeData]:
    """Return the others whose labels are those of a node on every axis they share."""
    shared = [axis for axis in others[0].coords if axis in node.coords]
    return [
        other
        for other in others
        if all(other.coords[axis] == node.coords[axis] for axis in shared)
    ]


def smooth(points: Points, grid: Array, width: float) -> Array:
    """Return a density: a Gaussian of one width at each point, times its weight.

    Args:
        points: the spectrum.
        grid: where to take the density, (G,).
        width: standard deviation of the Gaussians.

    Returns:
        The density, (G,).

    Reference:
        Lin, Saad and Yang (2016), doi:10.1137/130934283, section 3.2.3.
    """
    density = np.zeros(len(grid))
    # Some at a time: a matrix may have thousands of eigenvalues.
    for start in range(0, len(points.values), 512):
        some = slice(start, start + 512)
        scaled = (grid - points.values[some, None]) / width
        density += points.weights[some] @ np.exp(-(scaled**2) / 2)
    density /= width * np.sqrt(2 * np.pi)
    return density


def runs_sentence(nodes: Sequence[NodeData]) -> str:
    """Say what values come from: how many Lanczos runs, or whole matrices.

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
    told = (
        f"{_listed(runs)} {what if runs == {1} else many} of {_listed(sizes)} {length}"
    )
    # Runs average the same matrix, nodes are of different ones.
    return told if len(nodes) == 1 else f"{told} at each of {len(nodes)} nodes"


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def support(law: Law) -> tuple[float, float]:
    """Return the ends of the part of a law that has a density."""
    if isinstance(law, Semicircle):
        return -law.radius, law.radius
    root = law.ratio**0.5
    return law.variance * (1 - root) ** 2, law.variance * (1 + root) ** 2


def atom(law: Law) -> float:
    """Return the share of a law that lies at zero."""
    return 0.0 if isinstance(law, Semicircle) else max(0.0, 1 - 1 / law.ratio)


def law_density(law: Law, x: Array) -> Array:
    """Return the density of a law, apart from what lies at zero.

    Args:
        law: with its parameters.
        x: where to take it.

    Returns:
        The density, 0 outside the support; its integral is 1 less the atom.

    Reference:
        Wigner (1958), doi:10.2307/1970008. Marchenko and Pastur (1967),
        doi:10.1070/SM1967v001n04ABEH001994.
    """
    low, high = support(law)
    inside = np.sqrt(np.clip((x - low) * (high - x), 0, None))
    if isinstance(law, Semicircle):
        return 2 / (np.pi * law.radius**2) * inside
    below = 2 * np.pi * law.variance * law.ratio * np.where(inside > 0, x, 1)
    return inside / below
