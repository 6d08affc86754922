"""Differences of measured quantities from a baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import cast

import numpy as np

from curvflow.errors import InputError, nearest
from curvflow.schemas.kinds.aggregate.compare import (
    DIFFERING,
    SETTINGS,
    CompareParams,
)
from curvflow.schemas.nodes import Array, Label, Member, NodeData, Outcome
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.bootstrap import Resampling
from curvflow.tasks.statistics.differences import (
    Difference,
    bootstrap_interval,
    holm,
    paired_difference,
    unpaired_difference,
)
from curvflow.tasks.statistics.measurements import (
    Measured,
    chosen,
    judged,
    matrix,
    relied_on,
)

Place = tuple[Label, ...]
COUNTS = ("diverged", "nonfinite", "missing", "unconverged")
SAME = 1e-9  # relative difference of settings that rounding makes


@computes_each("aggregate.compare")
def compare(member: Member, machine: Machine) -> Outcome:
    """Compare every label of an axis with a baseline, quantity by quantity.

    Args:
        member: the nodes of one or several stages, each quantity using those of its own
            stage; nodes are paired where their labels of `over` agree.
        machine: not used.

    Returns:
        One row per quantity, label and point of `within`, each column of shape
        (quantity,).

    Raises:
        InputError: a quantity asked for is no number of the stages given, no node has
            the baseline, or none has another label.
    """
    params = cast("CompareParams", member.params)
    nodes = relied_on(member.inputs["of"], params.unconverged)
    taken = chosen(nodes, params.quantities)
    several = Counter(one.variable.name for one in taken)
    rows = [
        row
        for one in taken
        for row in _rows(
            _Sides(one, nodes, params),
            params,
            f"{one.stage}." if several[one.variable.name] > 1 else "",
        )
    ]
    if not rows:
        raise InputError(
            f"along: expected two labels or more of {params.along}, got "
            f"'{params.baseline}' alone. Give the axis another label, or leave the "
            "comparison out."
        )
    table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    for name in ("p_t", "p_rank"):
        table[f"{name}_holm"] = holm(table[name])
    return Outcome(judged(taken, _told(taken, table)))


def _told(taken: Sequence[Measured], table: dict[str, Array]) -> dict[str, Array]:
    """Return a table, without what is said of settings if no estimate has any."""
    has_settings = any(_settings(one, node) for one in taken for node in one.ok)
    return {n: v for n, v in table.items() if has_settings or n != DIFFERING}


def _settings(one: Measured, node: NodeData) -> dict[str, float]:
    """Return the settings that an estimate depends on."""
    names = SETTINGS if one.variable.judged_by else ()
    return {name: float(node[name]) for name in names if name in node}


@dataclass(frozen=True)
class _Side:
    """One element of a variable at the repetitions of one label.

    Attributes:
        there: values by place in `over`; those absent are not here.
        diverged: places whose node diverged.
        unconverged: places whose value is not converged.
        nodes: all places that have a node.
        settings: by place of values, what they depend on.
    """

    there: Mapping[Place, float]
    diverged: frozenset[Place]
    unconverged: frozenset[Place]
    nodes: frozenset[Place]
    settings: Mapping[Place, Mapping[str, float]]


class _Sides:
    """The elements of one variable, sorted by label and by place in `within`."""

    def __init__(
        self, one: Measured, nodes: Sequence[NodeData], params: CompareParams
    ) -> None:
        self._elements = matrix(one)
        self._one = one
        self.names, self.units = self._elements.names, one.variable.units
        self._row = {id(node): row for row, node in enumerate(one.ok)}
        self._nodes: dict[tuple[Label, Place], dict[Place, NodeData]] = {}
        # Also those without the variable, which not every label need have.
        for node in (node for node in nodes if node.stage == one.stage):
            side = node.coords[params.along], _place(node, params.within)
            self._nodes.setdefault(side, {})[_place(node, params.over)] = node

    @property
    def labels(self) -> list[Label]:
        return list(dict.fromkeys(label for label, _ in self._nodes))

    @property
    def groups(self) -> list[Place]:
        return list(dict.fromkeys(group for _, group in self._nodes))

    def of(self, label: Label, group: Place, column: int) -> _Side:
        nodes = self._nodes.get((label, group), {})
        found = self._elements
        rows = {
            place: row
            for place, node in nodes.items()
            if (row := self._row.get(id(node))) is not None
            and found.present[row, column]
        }
        there = {place: float(found.values[row, column]) for place, row in rows.items()}
        diverged = frozenset(
            place for place, node in nodes.items() if node.status == "diverged"
        )
        unconverged = frozenset(
            place for place, row in rows.items() if found.doubtful[row, column]
        )
        settings = {place: _settings(self._one, nodes[place]) for place in there}
        return _Side(there, diverged, unconverged, frozenset(nodes), settings)


def _place(node: NodeData, axes: Sequence[str]) -> Place:
    return tuple(node.coords[axis] for axis in axes)


def _rows(
    sides: _Sides, params: CompareParams, prefix: str
) -> Iterator[dict[str, object]]:
    baseline = params.baseline
    if baseline not in sides.labels:
        raise InputError(
            f"baseline: expected a label of {params.along}, got '{baseline}'. "
            f"{nearest(str(baseline), map(str, sides.labels))}"
        )
    others = [label for label in sides.labels if label != baseline]
    for column, name in enumerate(sides.names):
        for group, label in product(sides.groups, others):
            side, base = (sides.of(x, group, column) for x in (label, baseline))
            yield {
                "quantity": f"{prefix}{name}{params.row(label, group)}",
                "units": sides.units,
                "label": str(label),
                **_row(side, base, params),
            }


def _row(one: _Side, baseline: _Side, params: CompareParams) -> dict[str, object]:
    how = Resampling(params.bootstrap, params.num_resamples, params.seed)
    samples: tuple[Array, ...]
    if params.paired:
        first_N, second_N, counts = _pairs(one, baseline)
        samples = (first_N - second_N,)
        largest = float(np.abs([first_N, second_N]).max(initial=0))
        found = paired_difference(samples[0], params.confidence, largest=largest)
        above = int((samples[0] > 0).sum())
    else:
        (first_N, one_out), (second_N, other_out) = map(_alone, (one, baseline))
        samples, counts, above = (first_N, second_N), one_out + other_out, -1
        found = unpaired_difference(*samples, params.confidence)
    low, high = bootstrap_interval(samples, params.confidence, how)
    return {
        **_statistics(found),
        "bootstrap_low": low,
        "bootstrap_high": high,
        "label_mean": first_N.mean() if len(first_N) else np.nan,
        "baseline_mean": second_N.mean() if len(second_N) else np.nan,
        "count": len(first_N),
        "baseline_count": len(second_N),
        "above": above,
        **{name: counts[name] for name in COUNTS},
        DIFFERING: _differing(one, baseline, paired=params.paired),
    }


def _differing(one: _Side, other: _Side, *, paired: bool) -> str:
    """Say which settings differ among the values that are compared."""
    places = [
        {place for place, value in side.there.items() if np.isfinite(value)}
        for side in (one, other)
    ]
    if paired:
        places = [places[0] & places[1]] * 2
    taken = [
        side.settings[place]
        for side, own in zip((one, other), places, strict=True)
        for place in own
    ]
    told = []
    for name in SETTINGS:
        values = [settings[name] for settings in taken if name in settings]
        least, most = min(values, default=0.0), max(values, default=0.0)
        if most - least > SAME * abs(most):
            told.append(f"{name} {least:.3g} to {most:.3g}")
    return "; ".join(told)


def _statistics(found: Difference) -> dict[str, object]:
    return {
        "mean": found.mean,
        "sd": found.sd,
        "sem": found.sem,
        "low": found.limits[0],
        "high": found.limits[1],
        "p_t": found.p_t,
        "p_rank": found.p_rank,
        "effect": found.effect,
        "hedges_g": found.hedges_g,
    }


def _pairs(one: _Side, other: _Side) -> tuple[Array, Array, Counter[str]]:
    """Return the values of both at common places, and what is left out or doubtful."""
    counts: Counter[str] = Counter()
    kept = []
    # Sorted, so that no bit depends on the order of the nodes.
    for place in sorted(one.nodes | other.nodes, key=repr):
        pair = [side.there[place] for side in (one, other) if place in side.there]
        if place in one.diverged | other.diverged:
            counts["diverged"] += 1
            continue
        counts["unconverged"] += place in one.unconverged | other.unconverged
        if len(pair) < 2:
            counts["missing"] += 1
        elif not np.isfinite(pair).all():
            counts["nonfinite"] += 1
        else:
            kept.append(pair)
    first_N, second_N = np.array(kept, dtype=np.float64).reshape(-1, 2).T
    return first_N, second_N, counts


def _alone(side: _Side) -> tuple[Array, Counter[str]]:
    ordered = [side.there[place] for place in sorted(side.there, key=repr)]
    values_N = np.array(ordered, dtype=np.float64)
    finite = np.isfinite(values_N)
    lacking = len(side.nodes) - len(side.diverged) - len(values_N)
    counts = Counter(
        diverged=len(side.diverged),
        unconverged=len(side.unconverged),
        nonfinite=int((~finite).sum()),
        missing=lacking,
    )
    return values_N[finite], counts
