"""Pairs of two measured variables at nodes with equal labels, grouped into points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from curvflow.errors import InputError, nearest
from curvflow.schemas.kind import STAGE
from curvflow.schemas.nodes import Array, Label, NodeData
from curvflow.tasks.statistics.measurements import Measurement, is_unconverged

Coords = Mapping[str, Label]


@dataclass
class Point:
    """The pairs of nodes of one point.

    Attributes:
        labels: labels of the axes with a point per label.
        nodes: number of pairs.
        diverged: number of pairs with a diverged node.
        values: x and y of the other pairs.
        unconverged: x or y is not converged, for each of these pairs.
    """

    labels: Coords
    nodes: int = 0
    diverged: int = 0
    values: list[tuple[float, float]] = field(default_factory=list)
    unconverged: list[bool] = field(default_factory=list)

    def text(self, axis: str | None) -> str:
        """Return the label of an axis as text; empty for none."""
        return "" if axis is None else str(self.labels[axis])

    @property
    def finite(self) -> Array:
        """Finite pairs, shape (n, 2)."""
        values_N2 = np.array(self.values, dtype=np.float64).reshape(-1, 2)
        return values_N2[np.isfinite(values_N2).all(axis=1)]

    @property
    def num_unconverged(self) -> int:
        """Number of the finite pairs that are not converged."""
        return sum(
            is_doubtful and bool(np.isfinite(pair).all())
            for pair, is_doubtful in zip(self.values, self.unconverged, strict=True)
        )

    def converged_only(self) -> Point:
        """Return the point without the pairs that are not converged."""
        pairs = zip(self.values, self.unconverged, strict=True)
        kept = [pair for pair, is_doubtful in pairs if not is_doubtful]
        return replace(self, values=kept, unconverged=[False] * len(kept))


def paired_points(x: Measurement, y: Measurement, axes: Sequence[str]) -> list[Point]:
    """Pair the nodes of two variables with equal labels, and group them into points.

    Args:
        x: the horizontal variable.
        y: the vertical variable, of the same stage or another.
        axes: axes with a point for each label; `stage` is the stage of y.

    Returns:
        The points, in the order of the study.

    Raises:
        InputError: a variable is not a scalar of each node, or neither has an axis.
    """
    for role, measurement in (("x", x), ("y", y)):
        if measurement.variable.dims:
            raise InputError(
                f"{role}: expected a single number per node, got "
                f"{measurement.variable.name} "
                f"with {', '.join(measurement.variable.dims)}. Choose another variable."
            )
    known = {**x.nodes[0].coords, **y.nodes[0].coords, STAGE: y.stage}
    for axis in axes:
        if axis not in known:
            raise InputError(
                f"label, marker, each: expected an axis of {x.stage} or {y.stage}, got "
                f"'{axis}'. {nearest(axis, known) or 'They have none.'}"
            )
    points_of: dict[tuple[Label, ...], Point] = {}
    for coords, pair in _pairs(x, y):
        named = {**coords, STAGE: y.stage}
        labels = {axis: named[axis] for axis in axes}
        point = points_of.setdefault(tuple(labels.values()), Point(labels))
        point.nodes += 1
        if any(node.status == "diverged" for node in pair):
            point.diverged += 1
        else:
            at_x, at_y = (
                float(node[measurement.variable.name])
                for node, measurement in zip(pair, (x, y), strict=True)
            )
            point.values.append((at_x, at_y))
            doubts = map(is_unconverged, pair, (x.variable, y.variable))
            point.unconverged.append(any(doubts))
    return list(points_of.values())


def _pairs(
    x: Measurement, y: Measurement
) -> Iterator[tuple[Coords, tuple[NodeData, NodeData]]]:
    shared = [axis for axis in y.nodes[0].coords if axis in x.nodes[0].coords]
    partners: dict[tuple[Label, ...], list[NodeData]] = {}
    for node in x.nodes:
        place = tuple(node.coords[axis] for axis in shared)
        partners.setdefault(place, []).append(node)
    for node in y.nodes:
        for other in partners.get(tuple(node.coords[axis] for axis in shared), []):
            yield {**other.coords, **node.coords}, (other, node)


def label_combinations(
    x: Measurement, y: Measurement, axes: Sequence[str]
) -> list[tuple[Label, ...]]:
    """List the combinations of labels at which either variable has nodes.

    Args:
        x: first variable.
        y: second variable.
        axes: axes of either variable; a variable without an axis counts at all its
            labels.

    Returns:
        Labels of these axes, those of y first, in the order of the nodes.
    """
    nodes = [*y.nodes, *x.nodes]
    labels_of_axis = {
        axis: dict.fromkeys(n.coords[axis] for n in nodes if axis in n.coords)
        for axis in axes
    }
    combinations: dict[tuple[Label, ...], None] = {}
    for node in nodes:
        node_labels = [
            (node.coords[a],) if a in node.coords else labels_of_axis[a] for a in axes
        ]
        combinations |= dict.fromkeys(product(*node_labels))
    return list(combinations)


def num_unpaired(x: Measurement, y: Measurement, at: Coords) -> int:
    """Count the nodes of either variable that have no partner in the other.

    Args:
        x: first variable.
        y: second variable.
        at: labels of axes; only nodes with these labels, or without the axes, count.

    Returns:
        The number of unpaired nodes; 0 for two variables of one stage.
    """
    shared = [axis for axis in y.nodes[0].coords if axis in x.nodes[0].coords]
    shared_labels = [
        {tuple(node.coords[axis] for axis in shared) for node in measurement.nodes}
        for measurement in (x, y)
    ]
    return sum(
        tuple(node.coords[axis] for axis in shared) not in others
        for measurement, others in zip((x, y), reversed(shared_labels), strict=True)
        for node in measurement.nodes
        if all(node.coords.get(axis, label) == label for axis, label in at.items())
    )
