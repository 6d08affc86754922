"""Two measured variables, node by node, set out as points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from curvflow.errors import InputError, nearest
from curvflow.schemas.kind import STAGE
from curvflow.schemas.nodes import Array, Label, NodeData
from curvflow.tasks.statistics.measurements import Measured, is_unconverged

Coords = Mapping[str, Label]


@dataclass
class Point:
    """The pairs of nodes that one point stands for.

    Attributes:
        labels: of the axes that have points of their own.
        nodes: how many pairs there are.
        diverged: of how many a node diverged.
        values: x and y of the others.
        unconverged: of each of these, whether x or y is not converged.
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


def points(x: Measured, y: Measured, axes: Sequence[str]) -> list[Point]:
    """Pair the nodes of two variables whose labels agree, and sort them into points.

    Args:
        x: the variable drawn to the right.
        y: the variable drawn upwards, of the same stage or another.
        axes: those with a point for each label; `stage` is the stage of y.

    Returns:
        The points, in the order of the study.

    Raises:
        InputError: a variable is no single number per node, or neither has an axis.
    """
    for role, one in (("x", x), ("y", y)):
        if one.variable.dims:
            raise InputError(
                f"{role}: expected a single number per node, got {one.variable.name} "
                f"with {', '.join(one.variable.dims)}. Choose another variable."
            )
    known = {**x.nodes[0].coords, **y.nodes[0].coords, STAGE: y.stage}
    for axis in axes:
        if axis not in known:
            raise InputError(
                f"label, marker, each: expected an axis of {x.stage} or {y.stage}, got "
                f"'{axis}'. {nearest(axis, known) or 'They have none.'}"
            )
    found: dict[tuple[Label, ...], Point] = {}
    for coords, pair in _pairs(x, y):
        named = {**coords, STAGE: y.stage}
        labels = {axis: named[axis] for axis in axes}
        point = found.setdefault(tuple(labels.values()), Point(labels))
        point.nodes += 1
        if any(node.status == "diverged" for node in pair):
            point.diverged += 1
        else:
            at_x, at_y = (
                float(node[one.variable.name])
                for node, one in zip(pair, (x, y), strict=True)
            )
            point.values.append((at_x, at_y))
            doubts = map(is_unconverged, pair, (x.variable, y.variable))
            point.unconverged.append(any(doubts))
    return list(found.values())


def _pairs(
    x: Measured, y: Measured
) -> Iterator[tuple[Coords, tuple[NodeData, NodeData]]]:
    shared = [axis for axis in y.nodes[0].coords if axis in x.nodes[0].coords]
    partners: dict[tuple[Label, ...], list[NodeData]] = {}
    for node in x.nodes:
        place = tuple(node.coords[axis] for axis in shared)
        partners.setdefault(place, []).append(node)
    for node in y.nodes:
        for other in partners.get(tuple(node.coords[axis] for axis in shared), []):
            yield {**other.coords, **node.coords}, (other, node)


def places(x: Measured, y: Measured, axes: Sequence[str]) -> list[tuple[Label, ...]]:
    """List the labels of some axes at which either variable has nodes.

    Args:
        x: one variable.
        y: the other.
        axes: each of them an axis of either; where one lacks it, it is at all labels.

    Returns:
        Places in these axes, those of y first, in the order of the nodes.
    """
    nodes = [*y.nodes, *x.nodes]
    seen = {
        axis: dict.fromkeys(n.coords[axis] for n in nodes if axis in n.coords)
        for axis in axes
    }
    found: dict[tuple[Label, ...], None] = {}
    for node in nodes:
        own = [(node.coords[a],) if a in node.coords else seen[a] for a in axes]
        found |= dict.fromkeys(product(*own))
    return list(found)


def num_unpaired(x: Measured, y: Measured, at: Coords) -> int:
    """Count the nodes of either variable that have no partner in the other.

    Args:
        x: one variable.
        y: the other.
        at: labels of axes; only nodes there count, as far as they have these axes.

    Returns:
        The number of such nodes; 0 for two variables of one stage.
    """
    shared = [axis for axis in y.nodes[0].coords if axis in x.nodes[0].coords]
    places = [
        {tuple(node.coords[axis] for axis in shared) for node in one.nodes}
        for one in (x, y)
    ]
    return sum(
        tuple(node.coords[axis] for axis in shared) not in others
        for one, others in zip((x, y), reversed(places), strict=True)
        for node in one.nodes
        if all(node.coords.get(axis, label) == label for axis, label in at.items())
    )
