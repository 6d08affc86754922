"""Correlations of measured numbers over nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import cast

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.kinds.aggregate.correlate import CorrelateParams
from curvflow.schemas.nodes import Array, Label, Member, NodeData, Outcome
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.correlations import CORRELATIONS, correlation_interval
from curvflow.tasks.statistics.descriptive import statistics
from curvflow.tasks.statistics.differences import holm
from curvflow.tasks.statistics.measurements import (
    Measured,
    find_measured,
    judged,
    relied_on,
)
from curvflow.tasks.statistics.pairs import Point, num_unpaired, places, points

Place = tuple[Label, ...]


@computes_each("aggregate.correlate")
def correlate(member: Member, machine: Machine) -> Outcome:
    """Correlate numbers of nodes whose labels agree.

    Args:
        member: the nodes of the stages that measure x and y.
        machine: not used.

    Returns:
        One row per pair of variables, point of `within` and coefficient, each column of
        shape (quantity,); also where there is no pair of nodes.

    Raises:
        InputError: a variable is no single number of one of the stages given, or no
            labels agree.
    """
    params = cast("CorrelateParams", member.params)
    nodes = relied_on(member.inputs["of"], params.unconverged)
    pairs = [
        (_less(params, y, nodes), find_measured("x", x, nodes))
        for y, x in product(params.y, params.x)
    ]
    rows = [row for y, x in pairs for row in _rows(y, x, params)]
    if not any(row["count"] or row["diverged"] or row["nonfinite"] for row in rows):
        raise InputError(
            f"x, y: expected nodes of equal labels, got {', '.join(params.x)} and "
            f"{', '.join(params.y)} of stages that share none. Run them over the same "
            "labels."
        )
    table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    table["p_holm"] = np.full(len(rows), np.nan)
    for coefficient in params.coefficients:
        own = table["coefficient"] == coefficient
        table["p_holm"][own] = holm(table["p"][own])
    return Outcome(judged((one for pair in pairs for one in pair), table))


def _less(params: CorrelateParams, name: str, nodes: Sequence[NodeData]) -> Measured:
    """Return y, with what is taken off it taken off at every node that has both."""
    y = find_measured("y", name, nodes)
    if params.minus is None:
        return y
    off = params.minus
    find_measured("minus", off, [node for node in nodes if node.stage == y.stage])
    less = [
        replace(node, arrays={**node.arrays, name: node[name] - node[off]})
        if node.status == "ok"
        else node
        for node in y.nodes
    ]
    return Measured(y.variable, less)


def _rows(
    y: Measured, x: Measured, params: CorrelateParams
) -> Iterator[dict[str, object]]:
    words = y.variable.name + (f" - {params.minus}" if params.minus else "")
    groups: dict[Place, list[Point]] = {at: [] for at in places(x, y, params.within)}
    for point in points(x, y, (*params.within, *params.over)):
        groups[tuple(point.labels[axis] for axis in params.within)].append(point)
    for place, of in groups.items():
        where = zip(params.within, place, strict=True)
        behind = "".join(f", {axis}={label}" for axis, label in where)
        counts = _counts(of, x, y, dict(zip(params.within, place, strict=True)))
        # Sorted, so that no bit depends on the order of the nodes.
        x_N, y_N = np.array(sorted(_means(of)), dtype=np.float64).reshape(-1, 2).T
        for coefficient in params.coefficients:
            yield {
                "quantity": f"{words} against {x.variable.name}: {coefficient}{behind}",
                "y_variable": words,
                "y_units": y.variable.units,
                "x_variable": x.variable.name,
                "x_units": x.variable.units,
                "coefficient": coefficient,
                **_statistics(coefficient, x_N, y_N, params),
                "count": len(x_N),
                **counts,
            }


def _means(of: Sequence[Point]) -> Iterator[tuple[float, float]]:
    for point in of:
        if len(point.finite):
            x, y = statistics(point.finite).mean
            yield float(x), float(y)


def _counts(
    of: Sequence[Point], x: Measured, y: Measured, at: dict[str, Label]
) -> dict[str, int]:
    return {
        "diverged": sum(point.diverged for point in of),
        "nonfinite": sum(len(point.values) - len(point.finite) for point in of),
        "missing": num_unpaired(x, y, at),
        "unconverged": sum(sum(point.unconverged) for point in of),
    }


def _statistics(
    coefficient: str, x_N: Array, y_N: Array, params: CorrelateParams
) -> dict[str, float]:
    found = CORRELATIONS[coefficient](x_N, y_N, params.confidence)
    low, high = correlation_interval(
        coefficient,
        x_N,
        y_N,
        confidence=params.confidence,
        num_resamples=params.num_resamples,
        seed=params.seed,
    )
    return {
        "correlation": found.value,
        "low": found.limits[0],
        "high": found.limits[1],
        "bootstrap_low": low,
        "bootstrap_high": high,
        "p": found.p,
    }
