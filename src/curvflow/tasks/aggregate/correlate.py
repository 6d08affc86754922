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
from curvflow.tasks.statistics.cells import Labels
from curvflow.tasks.statistics.correlations import CORRELATIONS, correlation_interval
from curvflow.tasks.statistics.descriptive import statistics
from curvflow.tasks.statistics.differences import holm
from curvflow.tasks.statistics.measurements import (
    Measurement,
    drop_unjudged_counts,
    find_measurement,
    mask_unconverged,
)
from curvflow.tasks.statistics.pairs import (
    Point,
    label_combinations,
    num_unpaired,
    paired_points,
)


@computes_each("aggregate.correlate")
def correlate(member: Member, machine: Machine) -> Outcome:
    """Correlate numbers of nodes with equal labels.

    Args:
        member: nodes of the stages that measure x and y.
        machine: not used.

    Returns:
        A row per pair of variables, combination of `within` and coefficient, each
        column of shape (quantity,), even where no nodes pair.

    Raises:
        InputError: a variable is not a scalar of one of these stages, or no labels
            agree.
    """
    params = cast("CorrelateParams", member.params)
    nodes = mask_unconverged(member.inputs["of"], params.unconverged)
    pairs = [
        (_minus(params, y, nodes), find_measurement("x", x, nodes))
        for y, x in product(params.y, params.x)
    ]
    rows = [row for y, x in pairs for row in _rows(y, x, params)]
    if not any(row["count"] or row["diverged"] or row["nonfinite"] for row in rows):
        raise InputError(
            f"x, y: expected nodes with equal labels, got {', '.join(params.x)} and "
            f"{', '.join(params.y)} of stages without common labels. Run them over the "
            "same labels."
        )
    table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    table["p_holm"] = np.full(len(rows), np.nan)
    for coefficient in params.coefficients:
        of_coefficient = table["coefficient"] == coefficient
        table["p_holm"][of_coefficient] = holm(table["p"][of_coefficient])
    return Outcome(drop_unjudged_counts((m for pair in pairs for m in pair), table))


def _minus(
    params: CorrelateParams, name: str, nodes: Sequence[NodeData]
) -> Measurement:
    """Return y minus the variable `minus`, at every node that has both."""
    y = find_measurement("y", name, nodes)
    if params.minus is None:
        return y
    subtracted = params.minus
    find_measurement(
        "minus", subtracted, [node for node in nodes if node.stage == y.stage]
    )
    differences = [
        replace(node, arrays={**node.arrays, name: node[name] - node[subtracted]})
        if node.status == "ok"
        else node
        for node in y.nodes
    ]
    return Measurement(y.variable, differences)


def _rows(
    y: Measurement, x: Measurement, params: CorrelateParams
) -> Iterator[dict[str, object]]:
    y_text = y.variable.name + (f" - {params.minus}" if params.minus else "")
    groups: dict[Labels, list[Point]] = {
        at: [] for at in label_combinations(x, y, params.within)
    }
    for point in paired_points(x, y, (*params.within, *params.over)):
        groups[tuple(point.labels[axis] for axis in params.within)].append(point)
    for place, group_points in groups.items():
        group_labels = zip(params.within, place, strict=True)
        group_text = "".join(f", {axis}={label}" for axis, label in group_labels)
        counts = _counts(
            group_points, x, y, dict(zip(params.within, place, strict=True))
        )
        # Sorted, so that no bit depends on the order of the nodes.
        x_N, y_N = (
            np.array(sorted(_means(group_points)), dtype=np.float64).reshape(-1, 2).T
        )
        for coefficient in params.coefficients:
            yield {
                "quantity": f"{y_text} against {x.variable.name}: "
                f"{coefficient}{group_text}",
                "y_variable": y_text,
                "y_units": y.variable.units,
                "x_variable": x.variable.name,
                "x_units": x.variable.units,
                "coefficient": coefficient,
                **_statistics(coefficient, x_N, y_N, params),
                "count": len(x_N),
                **counts,
            }


def _means(group_points: Sequence[Point]) -> Iterator[tuple[float, float]]:
    for point in group_points:
        if len(point.finite):
            x, y = statistics(point.finite).mean
            yield float(x), float(y)


def _counts(
    group_points: Sequence[Point], x: Measurement, y: Measurement, at: dict[str, Label]
) -> dict[str, int]:
    return {
        "diverged": sum(point.diverged for point in group_points),
        "nonfinite": sum(
            len(point.values) - len(point.finite) for point in group_points
        ),
        "missing": num_unpaired(x, y, at),
        "unconverged": sum(sum(point.unconverged) for point in group_points),
    }


def _statistics(
    coefficient: str, x_N: Array, y_N: Array, params: CorrelateParams
) -> dict[str, float]:
    correlation = CORRELATIONS[coefficient](x_N, y_N, params.confidence)
    low, high = correlation_interval(
        coefficient,
        x_N,
        y_N,
        confidence=params.confidence,
        num_resamples=params.num_resamples,
        seed=params.seed,
    )
    return {
        "correlation": correlation.value,
        "low": correlation.limits[0],
        "high": correlation.limits[1],
        "bootstrap_low": low,
        "bootstrap_high": high,
        "p": correlation.p,
    }
