"""Points of scaling laws by label, the laws fitted to them, and their crossings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

import numpy as np

from curvflow.errors import InputError, nearest
from curvflow.schemas.kinds.shared.tables import ScalingLaw
from curvflow.schemas.nodes import Array, Label, NodeData
from curvflow.tasks.statistics.bootstrap import NO_LIMITS, Limits
from curvflow.tasks.statistics.label_groups import are_numbers
from curvflow.tasks.statistics.measurements import (
    Measurement,
    find_measurement,
    is_unconverged,
)
from curvflow.tasks.statistics.pairs import Point, paired_points
from curvflow.tasks.statistics.power_laws import (
    PowerLaw,
    crossover,
    percentile_interval,
    power_law,
    repetition_counts,
    resampled_crossover,
    resampled_laws,
)

Repetition = tuple[Label, ...]
_Flag = Literal["", "diverged", "unconverged"]
_RawPoint = tuple[Mapping[str, Label], float, float, _Flag]


@dataclass
class Series:
    """The points of one label.

    Attributes:
        label: label of the axis with a law per label; empty without.
        points: repetition, x and y of each fitted point.
        nodes: number of nodes.
        diverged: number of diverged nodes.
        nonpositive: number of points with x or y not above 0.
        nonfinite: number of points with NaN or infinity.
        unconverged: number of points with an unconverged value.
    """

    label: Label
    points: list[tuple[Repetition, float, float]] = field(default_factory=list)
    nodes: int = 0
    diverged: int = 0
    nonpositive: int = 0
    nonfinite: int = 0
    unconverged: int = 0

    @property
    def x(self) -> Array:
        """Positive x of the points, shape (N,)."""
        return np.array([x for _, x, _ in self.points], dtype=np.float64)

    @property
    def y(self) -> Array:
        """Positive y of the points, shape (N,)."""
        return np.array([y for _, _, y in self.points], dtype=np.float64)

    @property
    def num_repetitions(self) -> int:
        """Number of different repetitions among the points."""
        return len({repetition for repetition, _, _ in self.points})

    def add(self, repetition: Repetition, x: float, y: float) -> None:
        """Add a point, or count the reason to exclude it."""
        if not np.isfinite([x, y]).all():
            self.nonfinite += 1
        elif min(x, y) <= 0:
            self.nonpositive += 1
        else:
            self.points.append((repetition, x, y))


@dataclass(frozen=True)
class FittedLaw:
    """A series with its law.

    Attributes:
        series: the points.
        law: the law fitted to them.
        exponents: exponents of resamples, shape (R,).
        intercepts: intercepts of resamples, shape (R,).
    """

    series: Series
    law: PowerLaw
    exponents: Array
    intercepts: Array


def x_and_y(
    params: ScalingLaw, nodes: Sequence[NodeData]
) -> tuple[Measurement | None, Measurement]:
    """Return the variables x, None where it is an axis, and y."""
    x = None if params.x is None else find_measurement("x", params.x, nodes)
    return x, find_measurement("y", params.y, nodes)


def fit_laws(params: ScalingLaw, nodes: Sequence[NodeData]) -> list[FittedLaw]:
    """Fit a law to the points of each label.

    Args:
        params: names of x and y, and settings of the bootstrap.
        nodes: results of the stages that measure them.

    Returns:
        The laws, in the order of the labels.

    Raises:
        InputError: a variable is not measured, or labels of an axis are not numbers.
    """
    all_series = _series(params, nodes)
    repetitions = sorted(
        {r for series in all_series for r, _, _ in series.points}, key=repr
    )
    number_of = {repetition: number for number, repetition in enumerate(repetitions)}
    weights_RS = repetition_counts(
        max(len(repetitions), 1), params.num_resamples, params.seed
    )
    laws = []
    for series in all_series:
        x_N, y_N = series.x, series.y
        places = [number_of[repetition] for repetition, _, _ in series.points]
        drawn = resampled_laws(places, x_N, y_N, weights_RS)
        laws.append(FittedLaw(series, power_law(x_N, y_N), *drawn))
    return laws


def crossings(
    laws: Sequence[FittedLaw], confidence: float
) -> Iterator[dict[str, object]]:
    """Yield the crossover of each two laws.

    Args:
        laws: the fitted laws.
        confidence: coverage of the intervals.

    Yields:
        A row of `aggregate.scaling` with the dimension `crossing`.
    """
    for first, second in combinations(laws, 2):
        at, (low, high) = crossover(first.law, second.law, confidence)
        both_vary = min(first.series.num_repetitions, second.series.num_repetitions) > 1
        bootstrap = NO_LIMITS
        if both_vary:
            first_draws, second_draws = (
                (f.exponents, f.intercepts) for f in (first, second)
            )
            bootstrap = resampled_crossover(first_draws, second_draws, confidence)
        x_values = [np.array(f.series.x) for f in (first, second)]
        is_inside = all(len(x) and x.min() <= at <= x.max() for x in x_values)
        yield {
            "crossing": f"{first.series.label} / {second.series.label}",
            "crossover": at,
            "crossover_low": low,
            "crossover_high": high,
            "crossover_bootstrap_low": bootstrap[0],
            "crossover_bootstrap_high": bootstrap[1],
            "inside": bool(is_inside),
        }


def bootstrap_limits(law: FittedLaw, confidence: float) -> Limits:
    """Return the percentile interval of the exponent; NaN for a single repetition."""
    if law.series.num_repetitions < 2:
        return NO_LIMITS
    return percentile_interval(law.exponents, confidence)


def _series(params: ScalingLaw, nodes: Sequence[NodeData]) -> list[Series]:
    series_of: dict[Label, Series] = {}
    for labels, x, y, flag in _points(params, nodes):
        key = "" if params.label is None else labels[params.label]
        series = series_of.setdefault(key, Series(key))
        series.nodes += 1
        series.diverged += flag == "diverged"
        series.unconverged += flag == "unconverged"
        if flag != "diverged":
            axes = params.over or [axis for axis in labels if axis != params.label]
            series.add(tuple(labels[axis] for axis in axes), x, y)
    for series in series_of.values():
        series.points.sort(key=repr)  # so that no bit depends on the order of the nodes
    return list(series_of.values())


def _points(params: ScalingLaw, nodes: Sequence[NodeData]) -> Iterator[_RawPoint]:
    """Yield labels, x, y and a flag for each pair of nodes."""
    x, y = x_and_y(params, nodes)
    axes = [*(params.over or ()), *params.each]
    axes += [params.label] if params.label else []
    if x is not None:
        for point in paired_points(x, y, axes):
            yield from _of_point(point)
        return
    along = str(params.along)
    _check_axes(y, along, axes)
    for node in y.nodes:
        labels = {axis: node.coords[axis] for axis in (along, *axes)}
        if node.status == "diverged":
            yield labels, np.nan, np.nan, "diverged"
        else:
            flag: _Flag = "unconverged" if is_unconverged(node, y.variable) else ""
            yield labels, float(node.coords[along]), float(node[params.y]), flag


def _of_point(point: Point) -> Iterator[_RawPoint]:
    for (x, y), is_unconverged_pair in zip(
        point.values, point.unconverged, strict=True
    ):
        yield point.labels, x, y, "unconverged" if is_unconverged_pair else ""
    for _ in range(point.diverged):
        yield point.labels, np.nan, np.nan, "diverged"


def _check_axes(y: Measurement, along: str, axes: Sequence[str]) -> None:
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
