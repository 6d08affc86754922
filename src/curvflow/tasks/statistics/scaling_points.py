"""The points that power laws are fitted to, and what is fitted to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

import numpy as np

from curvflow.errors import InputError, nearest
from curvflow.schemas.kinds.shared.tables import ScalingLaw
from curvflow.schemas.nodes import Array, Label, NodeData
from curvflow.tasks.statistics.bootstrap import NOWHERE, Limits
from curvflow.tasks.statistics.label_groups import are_numbers
from curvflow.tasks.statistics.measurements import (
    Measured,
    find_measured,
    is_unconverged,
)
from curvflow.tasks.statistics.pairs import Point, points
from curvflow.tasks.statistics.power_laws import (
    PowerLaw,
    crossover,
    draws,
    percentiles,
    power_law,
    resampled_crossover,
    resampled_laws,
)

Repetition = tuple[Label, ...]
_Word = Literal["", "diverged", "unconverged"]
_Found = tuple[Mapping[str, Label], float, float, _Word]


@dataclass
class Series:
    """The points of one label.

    Attributes:
        label: of the axis whose labels have a law each; empty without.
        found: repetition, x and y of each point that is fitted.
        nodes: how many there are.
        diverged: nodes that diverged.
        nonpositive: points of which x or y is not above 0.
        nonfinite: points with NaN or infinity.
        unconverged: points with a value that is not converged.
    """

    label: Label
    found: list[tuple[Repetition, float, float]] = field(default_factory=list)
    nodes: int = 0
    diverged: int = 0
    nonpositive: int = 0
    nonfinite: int = 0
    unconverged: int = 0

    @property
    def x(self) -> Array:
        """Positive x of the points, shape (N,)."""
        return np.array([x for _, x, _ in self.found], dtype=np.float64)

    @property
    def y(self) -> Array:
        """Positive y of the points, shape (N,)."""
        return np.array([y for _, _, y in self.found], dtype=np.float64)

    @property
    def num_repetitions(self) -> int:
        """Different repetitions among the points."""
        return len({repetition for repetition, _, _ in self.found})

    def add(self, repetition: Repetition, x: float, y: float) -> None:
        """Take a point, or count why it is none."""
        if not np.isfinite([x, y]).all():
            self.nonfinite += 1
        elif min(x, y) <= 0:
            self.nonpositive += 1
        else:
            self.found.append((repetition, x, y))


@dataclass(frozen=True)
class Fitted:
    """A series with its law.

    Attributes:
        series: the points.
        law: fitted to them.
        exponents: of resamples, shape (R,).
        intercepts: of resamples, shape (R,).
    """

    series: Series
    law: PowerLaw
    exponents: Array
    intercepts: Array


def measured_axes(
    params: ScalingLaw, nodes: Sequence[NodeData]
) -> tuple[Measured | None, Measured]:
    """Return the variables that are x, None where it is an axis, and y."""
    x = None if params.x is None else find_measured("x", params.x, nodes)
    return x, find_measured("y", params.y, nodes)


def fitted(params: ScalingLaw, nodes: Sequence[NodeData]) -> list[Fitted]:
    """Fit a law to the points of each label.

    Args:
        params: what is x and y, and what the bootstrap draws.
        nodes: results of the stages that measure them.

    Returns:
        The laws, in the order of the labels.

    Raises:
        InputError: a variable is not measured, or an axis has labels that are no
            numbers.
    """
    every = _series(params, nodes)
    repetitions = sorted({r for one in every for r, _, _ in one.found}, key=repr)
    place = {repetition: number for number, repetition in enumerate(repetitions)}
    weights_RS = draws(max(len(repetitions), 1), params.num_resamples, params.seed)
    found = []
    for one in every:
        x_N, y_N = one.x, one.y
        places = [place[repetition] for repetition, _, _ in one.found]
        drawn = resampled_laws(places, x_N, y_N, weights_RS)
        found.append(Fitted(one, power_law(x_N, y_N), *drawn))
    return found


def crossings(of: Sequence[Fitted], confidence: float) -> Iterator[dict[str, object]]:
    """Yield where each two laws cross.

    Args:
        of: the laws.
        confidence: coverage of the intervals.

    Yields:
        A row of `aggregate.scaling` with the dimension `crossing`.
    """
    for one, other in combinations(of, 2):
        at, (low, high) = crossover(one.law, other.law, confidence)
        both_vary = min(one.series.num_repetitions, other.series.num_repetitions) > 1
        ends = NOWHERE
        if both_vary:
            first, second = ((f.exponents, f.intercepts) for f in (one, other))
            ends = resampled_crossover(first, second, confidence)
        every = [np.array(f.series.x) for f in (one, other)]
        is_inside = all(len(x) and x.min() <= at <= x.max() for x in every)
        yield {
            "crossing": f"{one.series.label} / {other.series.label}",
            "crossover": at,
            "crossover_low": low,
            "crossover_high": high,
            "crossover_bootstrap_low": ends[0],
            "crossover_bootstrap_high": ends[1],
            "inside": bool(is_inside),
        }


def bootstrap_limits(one: Fitted, confidence: float) -> Limits:
    """Return the percentile interval of the exponent; NaN of one repetition."""
    if one.series.num_repetitions < 2:
        return NOWHERE
    return percentiles(one.exponents, confidence)


def _series(params: ScalingLaw, nodes: Sequence[NodeData]) -> list[Series]:
    found: dict[Label, Series] = {}
    for labels, x, y, word in _points(params, nodes):
        key = "" if params.label is None else labels[params.label]
        one = found.setdefault(key, Series(key))
        one.nodes += 1
        one.diverged += word == "diverged"
        one.unconverged += word == "unconverged"
        if word != "diverged":
            axes = params.over or [axis for axis in labels if axis != params.label]
            one.add(tuple(labels[axis] for axis in axes), x, y)
    for one in found.values():
        one.found.sort(key=repr)  # so that no bit depends on the order of the nodes
    return list(found.values())


def _points(params: ScalingLaw, nodes: Sequence[NodeData]) -> Iterator[_Found]:
    """Yield labels, x, y and what is wrong with them, of each pair of nodes."""
    x, y = measured_axes(params, nodes)
    axes = [*(params.over or ()), *params.each]
    axes += [params.label] if params.label else []
    if x is not None:
        for point in points(x, y, axes):
            yield from _of_point(point)
        return
    along = str(params.along)
    _check(y, along, axes)
    for node in y.nodes:
        labels = {axis: node.coords[axis] for axis in (along, *axes)}
        if node.status == "diverged":
            yield labels, np.nan, np.nan, "diverged"
        else:
            word: _Word = "unconverged" if is_unconverged(node, y.variable) else ""
            yield labels, float(node.coords[along]), float(node[params.y]), word


def _of_point(point: Point) -> Iterator[_Found]:
    for (x, y), is_doubtful in zip(point.values, point.unconverged, strict=True):
        yield point.labels, x, y, "unconverged" if is_doubtful else ""
    for _ in range(point.diverged):
        yield point.labels, np.nan, np.nan, "diverged"


def _check(y: Measured, along: str, axes: Sequence[str]) -> None:
    if y.variable.dims:
        raise InputError(
            f"y: expected a single number per node, got {y.variable.name} with "
            f"{', '.join(y.variable.dims)}. Choose another variable."
        )
    known = y.nodes[0].coords
    for axis in (along, *axes):
        if axis not in known:
            raise InputError(
                f"along, over, each, label: expected an axis of {y.stage}, got "
                f"'{axis}'. {nearest(axis, known) or 'It has none.'}"
            )
    labels = list(dict.fromkeys(node.coords[along] for node in y.nodes))
    if not are_numbers(labels):
        raise InputError(
            f"along: expected an axis whose labels are numbers, got {along} with "
            f"{', '.join(map(str, labels))}. List the numbers, or name a variable as x."
        )
