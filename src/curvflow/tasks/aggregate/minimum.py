"""Argument of the least value of a quantity along a numeric axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from scipy.special import stdtrit

from curvflow.errors import InputError
from curvflow.schemas.kind import error_of
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.aggregate.minimum import MinimumParams
from curvflow.schemas.nodes import Array, Member, NodeData, Outcome
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.cells import Labels, labels_of
from curvflow.tasks.statistics.label_groups import are_numbers
from curvflow.tasks.statistics.measurements import (
    Measurement,
    drop_unjudged_counts,
    find_measurement,
    mask_unconverged,
    unconverged_mask,
)


@dataclass(frozen=True)
class _Curve:
    """Finite values of one repetition, by ascending x, (P,), with standard errors."""

    x: Array
    y: Array
    sem: Array


@dataclass(frozen=True)
class _Vertices:
    """Minima of R curves at the same x.

    Attributes:
        argument: x of each, (R,).
        minimum: value there, (R,).
        at_edge: whether the least value is the first or last, (R,).
        spacing: half of the distance of the neighbours; NaN at an edge, (R,).
    """

    argument: Array
    minimum: Array
    at_edge: Array
    spacing: Array


@computes_each("aggregate.minimum")
def minimum(member: Member, machine: Machine) -> Outcome:
    """Find where a quantity is least, for each repetition.

    Args:
        member: nodes of the stage that measures it.
        machine: not used.

    Returns:
        A row with the argument, its interval, and counts.

    Raises:
        InputError: the quantity is not a number of one of the stages, x is not
            numbers, or no repetition has a value.
    """
    params = cast("MinimumParams", member.params)
    nodes = mask_unconverged(member.inputs["of"], params.unconverged)
    measured = find_measurement("quantity", params.quantity, nodes)
    curves, nonfinite = _curves(measured, params)
    if not curves:
        raise InputError(
            f"quantity: expected values of '{params.quantity}', got none that is "
            "finite. Look at the stage that measures it."
        )
    corners = [_vertices(curve.x, curve.y[None]) for curve in curves]
    arguments, at_edge, spacing, least = (
        np.array([getattr(vertices, name)[0] for vertices in corners])
        for name in ("argument", "at_edge", "spacing", "minimum")
    )
    there = spacing[np.isfinite(spacing)]
    doubtful = sum(
        int(unconverged_mask(n, measured.variable).sum()) for n in measured.ok
    )
    row = {
        "quantity": f"{params.quantity} along {params.along or params.x}",
        "argument": arguments.mean(),
        **_interval(arguments, curves, params),
        "minimum": least.mean(),
        "least_x": min(curve.x[0] for curve in curves),
        "greatest_x": max(curve.x[-1] for curve in curves),
        "spacing": there.mean() if len(there) else np.nan,
        "count": len(curves),
        "at_edge": int(at_edge.sum()),
        "diverged": len(measured.diverged),
        "nonfinite": nonfinite,
        "unconverged": doubtful,
    }
    table = {name: np.array([value]) for name, value in row.items()}
    return Outcome(drop_unjudged_counts([measured], table))


def _curves(measured: Measurement, params: MinimumParams) -> tuple[list[_Curve], int]:
    """Return the curves of all repetitions, and how many values are not finite."""
    points: dict[Labels, list[tuple[float, float, float]]] = {}
    for node in measured.ok:
        row = points.setdefault(labels_of(node, _held(params.over, node)), [])
        row += zip(*_values(node, measured, params), strict=True)
    curves, nonfinite = [], 0
    for row in points.values():
        x, y, sem = np.array(sorted(row), dtype=np.float64).T
        if (np.diff(x) == 0).any():
            raise InputError(
                f"over: expected one value for each {params.along or params.x}, got "
                "several. Name the axes of the repetitions."
            )
        finite = np.isfinite(x) & np.isfinite(y)
        nonfinite += int((~finite).sum())
        if finite.any():
            curves.append(_Curve(x[finite], y[finite], sem[finite]))
    return curves, nonfinite


def _held(axes: Sequence[str], node: NodeData) -> list[str]:
    return [axis for axis in axes if axis in node.coords]


def _values(
    node: NodeData, measured: Measurement, params: MinimumParams
) -> Iterator[Array]:
    """Yield x, values and standard errors of a node."""
    name = measured.variable.name
    values = np.atleast_1d(np.asarray(node[name], dtype=np.float64))
    if params.along is None:
        yield np.atleast_1d(np.asarray(node[str(params.x)], dtype=np.float64))
    else:
        label = node.coords.get(params.along, "")
        if not are_numbers([label]):
            raise InputError(
                f"along: expected an axis of {node.stage} whose labels are numbers, "
                f"got '{label}' of {params.along}. Name another."
            )
        yield np.array([float(label)])
    yield values
    error = error_of(find_kind(node.kind), name)
    yield (
        np.atleast_1d(np.asarray(node[error], dtype=np.float64))
        if error in node
        else np.full(values.shape, np.nan)
    )


def _vertices(x_P: Array, y_RP: Array) -> _Vertices:
    """Return vertices of parabolas through the least values and their neighbours."""
    least = y_RP.argmin(1)
    rows = np.arange(len(y_RP))
    at_edge = (least == 0) | (least == len(x_P) - 1)
    inner = np.where(at_edge, 1, least) if len(x_P) > 2 else np.zeros_like(least)
    argument, value = x_P[least].copy(), y_RP[rows, least].copy()
    spacing = np.full(len(y_RP), np.nan)
    if len(x_P) > 2:
        # y = y1 + s (x - x1) + c (x - x1)^2 by divided differences.
        left, right = x_P[inner] - x_P[inner - 1], x_P[inner + 1] - x_P[inner]
        fall = (y_RP[rows, inner - 1] - y_RP[rows, inner]) / left
        rise = (y_RP[rows, inner + 1] - y_RP[rows, inner]) / right
        curvature, slope = fall + rise, (left * rise - right * fall) / (left + right)
        bends = ~at_edge & (curvature > 0)
        step = -slope * (left + right) / (2 * np.where(bends, curvature, 1.0))
        argument = np.where(bends, argument + step, argument)
        value = np.where(bends, value + slope * step / 2, value)
        spacing = np.where(at_edge, np.nan, (left + right) / 2)
    return _Vertices(argument, value, at_edge, spacing)


def _interval(
    arguments: Array, curves: Sequence[_Curve], params: MinimumParams
) -> dict[str, object]:
    share = (1 + params.confidence) / 2
    count = len(arguments)
    if count > 1:
        sd = float(arguments.std(ddof=1))
        sem = sd / np.sqrt(count)
        half = float(stdtrit(count - 1, share)) * sem
        low, high = arguments.mean() - half, arguments.mean() + half
        of = "repetitions"
    else:
        sd, sem, low, high, of = np.nan, np.nan, np.nan, np.nan, "none"
        (curve,) = curves
        if np.isfinite(curve.sem).all():
            drawn = np.random.default_rng(params.seed).standard_normal(
                (params.num_resamples, len(curve.x))
            )
            lowest = _vertices(curve.x, curve.y + curve.sem * drawn).argument
            sem, of = float(lowest.std(ddof=1)), "errors"
            low, high = np.quantile(lowest, [1 - share, share])
    return {
        "argument_sd": sd,
        "argument_sem": sem,
        "argument_low": float(low),
        "argument_high": float(high),
        "interval": of,
    }
