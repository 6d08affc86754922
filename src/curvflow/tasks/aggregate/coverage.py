"""Coverage of stated intervals: the fraction that contains the true value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from scipy.special import stdtrit

from curvflow.errors import InputError, nearest
from curvflow.schemas.kind import error_of
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.aggregate.coverage import CoverageParams
from curvflow.schemas.nodes import Array, Member, NodeData, Outcome
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.descriptive import clopper_pearson
from curvflow.tasks.statistics.measurements import (
    Measurement,
    mask_unconverged,
    measurements,
)

STATED = 0.95  # confidence of the intervals that kinds state


@dataclass(frozen=True)
class _Errors:
    """Errors of one estimate: z-scores, coverage and finiteness of E elements, (E,)."""

    z: Array
    inside: Array
    known: Array


@computes_each("aggregate.coverage")
def coverage(member: Member, machine: Machine) -> Outcome:
    """Count the intervals that contain the true value at the same labels.

    Args:
        member: estimates of one or several stages, and nodes with the true values.
        machine: not used.

    Returns:
        Per quantity and element the fraction of intervals that contain the true value,
        with its interval, and mean and spread of the errors in standard errors.

    Raises:
        InputError: a variable is missing, or several true values fit one estimate.

    Reference:
        Clopper and Pearson (1934), doi:10.1093/biomet/26.4.404.
    """
    params = cast("CoverageParams", member.params)
    stages: dict[str, list[NodeData]] = {}
    for node in mask_unconverged(member.inputs["of"], params.unconverged):
        stages.setdefault(node.stage, []).append(node)
    rows: dict[str, list[_Errors]] = {}
    unjudged: dict[str, int] = {}
    for name in params.quantities:
        stages_with = [m.stage for m in _named(name, member.inputs["of"])]
        if not stages_with:
            known = {key for node in member.inputs["of"] for key in node.arrays}
            raise InputError(
                f"quantities: expected variables of the given stages, got '{name}'. "
                f"{nearest(name, known)}"
            )
        for stage in stages_with:
            nodes = stages[stage]
            row = f"{stage}.{name}" if len(stages_with) > 1 else name
            pairs = list(_pairs(nodes, member.inputs["truth"], name, params))
            rows[row] = [_errors(*pair, name, params) for pair in pairs]
            unjudged[row] = len(nodes) - len(pairs)
    return Outcome(_table(rows, unjudged))


def _named(name: str, nodes: Sequence[NodeData]) -> list[Measurement]:
    return [m for m in measurements(nodes, [name]) if m.variable.name == name]


def _pairs(
    nodes: Sequence[NodeData],
    truths: Sequence[NodeData],
    name: str,
    params: CoverageParams,
) -> Iterator[tuple[NodeData, Array]]:
    """Yield estimates with the true value whose labels are all the estimate's."""
    required = params.truth_variable or name
    holding = _named(required, truths)
    if not holding:
        known = {key for node in truths for key in node.arrays}
        raise InputError(
            f"truth: expected a stage that holds '{required}', got none. "
            f"{nearest(required, known)}"
        )
    if len(holding) > 1:
        raise InputError(
            f"truth: expected one stage that holds '{required}', got several. Name one "
            "of them."
        )
    exact = holding[0].nodes
    at = {frozenset(node.coords.items()): node for node in exact}
    for node in nodes:
        point = frozenset((dim, node.coords[dim]) for dim in exact[0].coords)
        if node.status == "ok" and point in at and at[point].status == "ok":
            yield node, at[point][required]


def _errors(node: NodeData, truth: Array, name: str, params: CoverageParams) -> _Errors:
    value = np.atleast_1d(node[name]).astype(np.float64).ravel()
    exact = np.atleast_1d(truth).astype(np.float64).ravel()
    if value.shape != exact.shape:
        raise InputError(
            f"truth: expected the {value.size} elements of '{name}', got {exact.size}. "
            "Measure both with the same shape."
        )
    slack = params.rounding * np.maximum(np.abs(exact), np.abs(value))
    error, z = error_of(find_kind(node.kind), name), np.full(value.shape, np.nan)
    if error in node:
        sem = node[error].ravel()
        has_error = np.isfinite(sem) & (sem > slack)
        z[has_error] = ((value - exact) / np.where(has_error, sem, 1.0))[has_error]
    if f"{name}_low" in node:
        if params.confidence != STATED:
            raise InputError(
                f"confidence: expected {STATED}, that of {name}_low and {name}_high, "
                f"got {params.confidence:g}. Leave it out."
            )
        low, high = (node[f"{name}_{end}"].ravel() for end in ("low", "high"))
    elif error in node:
        half = _student_quantile(node, params) * sem
        low, high = value - half, value + half
    else:
        raise InputError(
            f"quantities: expected '{name}' with a standard error, such as "
            f"{name}_sem, or its interval, {name}_low and {name}_high, got neither. "
            "Take another quantity."
        )
    known = np.isfinite(exact) & np.isfinite(low) & np.isfinite(high)
    inside = (low - slack <= exact) & (exact <= high + slack)
    return _Errors(np.where(known, z, np.nan), inside & known, known)


def _student_quantile(node: NodeData, params: CoverageParams) -> float:
    draws = int(node["num_draws"]) if "num_draws" in node else params.draws
    freedom = 1e12 if draws is None else max(draws - 1, 1)
    return float(stdtrit(freedom, (1 + params.confidence) / 2))


def _table(
    rows: Mapping[str, Sequence[_Errors]], unjudged: Mapping[str, int]
) -> dict[str, Array]:
    columns: dict[str, list[object]] = {}
    for name, errors in rows.items():
        sizes = {len(error.z) for error in errors} or {1}
        if len(sizes) != 1:
            raise InputError(
                f"quantities: expected '{name}' to have the same shape at all nodes, "
                f"got {len(sizes)} shapes. Repeat a single measurement."
            )
        (size,) = sizes
        for element in range(size):
            label = f"{name}[{element}]" if size > 1 else name
            for key, entry in _row(errors, element, unjudged[name]).items():
                columns.setdefault(key, []).append(entry)
            columns.setdefault("quantity", []).append(label)
    return {key: np.array(column) for key, column in columns.items()}


def _row(errors: Sequence[_Errors], element: int, unjudged: int) -> dict[str, object]:
    known = np.array([error.known[element] for error in errors])
    inside = int(sum(error.inside[element] for error in errors))
    z = np.array([error.z[element] for error in errors])
    z, count = z[np.isfinite(z)], int(known.sum())
    low, high = clopper_pearson(inside, count, 0.025)
    whole = len(errors) + unjudged
    return {
        "coverage": inside / count if count else np.nan,
        "coverage_low": low,
        "coverage_high": high,
        "mean_z": z.mean() if len(z) else np.nan,
        "sd_z": z.std(ddof=1) if len(z) > 1 else np.nan,
        "count": np.int64(count),
        "unjudged": np.int64(whole - count),
        "judged": count / whole if whole else np.nan,
    }
