"""How often stated intervals hold the truth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from scipy.special import betaincinv, stdtrit

from curvflow.errors import InputError, nearest
from curvflow.schemas.kind import error_of
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.aggregate.coverage import CoverageParams
from curvflow.schemas.nodes import Array, Member, NodeData, Outcome
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.measurements import Measured, measured


@dataclass(frozen=True)
class _Judged:
    """One estimate beside its truth, of E elements: z and inside, each (E,)."""

    z: Array
    inside: Array
    known: Array


@computes_each("aggregate.coverage")
def coverage(member: Member, machine: Machine) -> Outcome:
    """Count the intervals that hold the truth at the same point of the axes.

    Args:
        member: estimates of one or several stages, and the nodes that hold the truth.
        machine: not used.

    Returns:
        Per quantity and element the share of intervals that hold the truth with an
        interval of its own, and mean and spread of the errors in standard errors.

    Raises:
        InputError: a variable is missing, or several truths fit one estimate.

    Reference:
        Clopper and Pearson (1934), doi:10.1093/biomet/26.4.404.
    """
    params = cast("CoverageParams", member.params)
    stages: dict[str, list[NodeData]] = {}
    for node in member.inputs["of"]:
        stages.setdefault(node.stage, []).append(node)
    rows: dict[str, list[_Judged]] = {}
    unjudged: dict[str, int] = {}
    for name in params.quantities:
        having = [one.stage for one in _named(name, member.inputs["of"])]
        if not having:
            known = {key for node in member.inputs["of"] for key in node.arrays}
            raise InputError(
                f"quantities: expected variables of the stages taken, got '{name}'. "
                f"{nearest(name, known)}"
            )
        for stage in having:
            nodes = stages[stage]
            row = f"{stage}.{name}" if len(having) > 1 else name
            pairs = list(_pairs(nodes, member.inputs["truth"], name, params))
            rows[row] = [_judged(*pair, name, params) for pair in pairs]
            unjudged[row] = len(nodes) - len(pairs)
    return Outcome(_table(rows, unjudged))


def _named(name: str, nodes: Sequence[NodeData]) -> list[Measured]:
    return [one for one in measured(nodes, [name]) if one.variable.name == name]


def _pairs(
    nodes: Sequence[NodeData],
    truths: Sequence[NodeData],
    name: str,
    params: CoverageParams,
) -> Iterator[tuple[NodeData, Array]]:
    """Yield estimates with their truth: that whose labels are all the estimate's."""
    wanted = params.truth_variable or name
    holding = _named(wanted, truths)
    if not holding:
        known = {key for node in truths for key in node.arrays}
        raise InputError(
            f"truth: expected a stage that holds '{wanted}', got none. "
            f"{nearest(wanted, known)}"
        )
    if len(holding) > 1:
        raise InputError(
            f"truth: expected one stage that holds '{wanted}', got several. Name one."
        )
    exact = holding[0].nodes
    at = {frozenset(node.coords.items()): node for node in exact}
    for node in nodes:
        point = frozenset((dim, node.coords[dim]) for dim in exact[0].coords)
        if node.status == "ok" and point in at and at[point].status == "ok":
            yield node, at[point][wanted]


def _judged(node: NodeData, truth: Array, name: str, params: CoverageParams) -> _Judged:
    value = np.atleast_1d(node[name]).astype(np.float64).ravel()
    exact = np.atleast_1d(truth).astype(np.float64).ravel()
    if value.shape != exact.shape:
        raise InputError(
            f"truth: expected as many elements as '{name}' has, {value.size}, got "
            f"{exact.size}. Measure both alike."
        )
    slack = params.rounding * np.maximum(np.abs(exact), np.abs(value))
    z = np.full(value.shape, np.nan)
    if f"{name}_low" in node:
        low, high = (node[f"{name}_{end}"].ravel() for end in ("low", "high"))
    elif (error := error_of(find_kind(node.kind), name)) in node:
        sem = node[error].ravel()
        half = _student(node, params) * sem
        low, high = value - half, value + half
        has_error = sem > slack
        z[has_error] = ((value - exact) / np.where(has_error, sem, 1.0))[has_error]
    else:
        raise InputError(
            f"quantities: expected '{name}' with a standard error, such as "
            f"{name}_sem, or its interval, {name}_low and {name}_high, got neither. "
            "Take another."
        )
    known = np.isfinite(exact) & np.isfinite(low) & np.isfinite(high)
    inside = (low - slack <= exact) & (exact <= high + slack)
    return _Judged(np.where(known, z, np.nan), inside & known, known)


def _student(node: NodeData, params: CoverageParams) -> float:
    draws = int(node["num_draws"]) if "num_draws" in node else params.draws
    freedom = 1e12 if draws is None else max(draws - 1, 1)
    return float(stdtrit(freedom, (1 + params.confidence) / 2))


def _table(
    rows: Mapping[str, Sequence[_Judged]], unjudged: Mapping[str, int]
) -> dict[str, Array]:
    columns: dict[str, list[object]] = {}
    for name, judged in rows.items():
        sizes = {len(one.z) for one in judged} or {1}
        if len(sizes) != 1:
            raise InputError(
                f"quantities: expected '{name}' of one shape at some point, got "
                f"{len(sizes)} shapes. Repeat one measurement."
            )
        (size,) = sizes
        for element in range(size):
            label = f"{name}[{element}]" if size > 1 else name
            for key, entry in _row(judged, element, unjudged[name]).items():
                columns.setdefault(key, []).append(entry)
            columns.setdefault("quantity", []).append(label)
    return {key: np.array(column) for key, column in columns.items()}


def _row(judged: Sequence[_Judged], element: int, unjudged: int) -> dict[str, object]:
    known = np.array([one.known[element] for one in judged])
    inside = int(sum(one.inside[element] for one in judged))
    z = np.array([one.z[element] for one in judged])
    z, count = z[np.isfinite(z)], int(known.sum())
    low, high = _binomial(inside, count)
    return {
        "coverage": inside / count if count else np.nan,
        "coverage_low": low,
        "coverage_high": high,
        "mean_z": z.mean() if len(z) else np.nan,
        "sd_z": z.std(ddof=1) if len(z) > 1 else np.nan,
        "count": np.int64(count),
        "unjudged": np.int64(len(judged) - count + unjudged),
    }


def _binomial(inside: int, count: int) -> tuple[float, float]:
    if not count:
        return np.nan, np.nan
    low = betaincinv(inside, count - inside + 1, 0.025) if inside else 0.0
    high = betaincinv(inside + 1, count - inside, 0.975) if inside < count else 1.0
    return float(low), float(high)
