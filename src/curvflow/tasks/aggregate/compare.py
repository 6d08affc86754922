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
from curvflow.schemas.words import counted
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.bootstrap import Resampling
from curvflow.tasks.statistics.cells import Labels, labels_of
from curvflow.tasks.statistics.differences import (
    Difference,
    bootstrap_interval,
    holm,
    paired_difference,
    unpaired_difference,
)
from curvflow.tasks.statistics.measurements import (
    Measurement,
    drop_unjudged_counts,
    element_matrix,
    mask_unconverged,
    select_measurements,
)

COUNTS = ("diverged", "nonfinite", "missing", "unconverged")
SETTINGS_RTOL = 1e-9  # relative difference of settings within rounding


@computes_each("aggregate.compare")
def compare(member: Member, machine: Machine) -> Outcome:
    """Compare every label of an axis with a baseline, quantity by quantity.

    Args:
        member: nodes of one or several stages; each quantity uses the nodes of its
            stage, paired where their labels of `over` agree.
        machine: not used.

    Returns:
        A row per quantity, label and combination of `within`, each column of shape
        (quantity,).

    Raises:
        InputError: a requested quantity is not a number of these stages, no node has
            the baseline, or none has another label; where these failed, it says so.
    """
    params = cast("CompareParams", member.params)
    nodes = mask_unconverged(member.inputs["of"], params.unconverged)
    _check_present(member, params)
    measurements = select_measurements(nodes, params.quantities)
    stage_counts = Counter(m.variable.name for m in measurements)
    rows = [
        row
        for m in measurements
        for row in _rows(
            _Sides(m, nodes, params),
            params,
            f"{m.stage}." if stage_counts[m.variable.name] > 1 else "",
        )
    ]
    if not rows:
        raise InputError(
            f"along: expected at least two labels of {params.along}, got only "
            f"'{params.baseline}'. Give the axis another label, or leave the "
            "comparison "
            "out."
        )
    table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    for name in ("p_t", "p_rank"):
        table[f"{name}_holm"] = holm(table[name])
    return Outcome(
        drop_unjudged_counts(measurements, _drop_settings_column(measurements, table))
    )


def _check_present(member: Member, params: CompareParams) -> None:
    """Refuse to compare if all nodes on one side have failed.

    Raises:
        InputError: they have; it is said of which label.
    """
    for stage in dict.fromkeys(node.stage for node in member.all_absent):
        there, failed = (
            Counter(n.coords[params.along] for n in nodes if n.stage == stage)
            for nodes in (member.inputs["of"], member.all_absent)
        )
        lost = [label for label in failed if label not in there]
        if lost and (params.baseline in lost or there.keys() <= {params.baseline}):
            count = counted(sum(failed[label] for label in lost), "node")
            raise InputError(
                f"of: expected results of {stage} to compare at {params.along} "
                f"{', '.join(map(str, lost))}, got none: {count} failed. See why, and "
                "run again."
            )


def _drop_settings_column(
    measurements: Sequence[Measurement], table: dict[str, Array]
) -> dict[str, Array]:
    """Drop the column of differing settings if no estimate has settings."""
    has_settings = any(_settings(m, node) for m in measurements for node in m.ok)
    return {n: v for n, v in table.items() if has_settings or n != DIFFERING}


def _settings(measurement: Measurement, node: NodeData) -> dict[str, float]:
    """Return the settings that determine an estimate."""
    names = SETTINGS if measurement.variable.judged_by else ()
    return {name: float(node[name]) for name in names if name in node}


@dataclass(frozen=True)
class _Side:
    """One element of a variable at the repetitions of one label.

    Repetitions are given by their labels of `over`.

    Attributes:
        values: values of the repetitions that have one.
        diverged: repetitions whose node diverged.
        unconverged: repetitions whose value is not converged.
        nodes: all repetitions with a node.
        settings: settings of the values.
    """

    values: Mapping[Labels, float]
    diverged: frozenset[Labels]
    unconverged: frozenset[Labels]
    nodes: frozenset[Labels]
    settings: Mapping[Labels, Mapping[str, float]]


class _Sides:
    """The elements of one variable, by label and by labels of `within`."""

    def __init__(
        self, measurement: Measurement, nodes: Sequence[NodeData], params: CompareParams
    ) -> None:
        self._elements = element_matrix(measurement)
        self._measurement = measurement
        self.names, self.units = self._elements.names, measurement.variable.units
        self._row = {id(node): row for row, node in enumerate(measurement.ok)}
        self._nodes: dict[tuple[Label, Labels], dict[Labels, NodeData]] = {}
        # Nodes without an optional variable count too.
        for node in (node for node in nodes if node.stage == measurement.stage):
            side = node.coords[params.along], labels_of(node, params.within)
            self._nodes.setdefault(side, {})[labels_of(node, params.over)] = node

    @property
    def labels(self) -> list[Label]:
        return list(dict.fromkeys(label for label, _ in self._nodes))

    @property
    def groups(self) -> list[Labels]:
        return list(dict.fromkeys(group for _, group in self._nodes))

    def of(self, label: Label, group: Labels, column: int) -> _Side:
        nodes = self._nodes.get((label, group), {})
        elements = self._elements
        rows = {
            place: row
            for place, node in nodes.items()
            if (row := self._row.get(id(node))) is not None
            and elements.present[row, column]
        }
        values = {
            place: float(elements.values[row, column]) for place, row in rows.items()
        }
        diverged = frozenset(
            place for place, node in nodes.items() if node.status == "diverged"
        )
        unconverged = frozenset(
            place for place, row in rows.items() if elements.unconverged[row, column]
        )
        settings = {
            place: _settings(self._measurement, nodes[place]) for place in values
        }
        return _Side(values, diverged, unconverged, frozenset(nodes), settings)


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


def _row(side: _Side, baseline: _Side, params: CompareParams) -> dict[str, object]:
    resampling = Resampling(params.bootstrap, params.num_resamples, params.seed)
    samples: tuple[Array, ...]
    if params.paired:
        first_N, second_N, counts = _paired_values(side, baseline)
        samples = (first_N - second_N,)
        largest = float(np.abs([first_N, second_N]).max(initial=0))
        difference = paired_difference(samples[0], params.confidence, largest=largest)
        above = int((samples[0] > 0).sum())
    else:
        (first_N, side_out), (second_N, baseline_out) = map(
            _unpaired_values, (side, baseline)
        )
        samples, counts, above = (first_N, second_N), side_out + baseline_out, -1
        difference = unpaired_difference(*samples, params.confidence)
    low, high = bootstrap_interval(samples, params.confidence, resampling)
    return {
        **_statistics(difference),
        "bootstrap_low": low,
        "bootstrap_high": high,
        "label_mean": first_N.mean() if len(first_N) else np.nan,
        "baseline_mean": second_N.mean() if len(second_N) else np.nan,
        "count": len(first_N),
        "baseline_count": len(second_N),
        "above": above,
        **{name: counts[name] for name in COUNTS},
        DIFFERING: _differing_settings(side, baseline, paired=params.paired),
    }


def _differing_settings(first: _Side, second: _Side, *, paired: bool) -> str:
    """Return as text the settings that differ among the compared values."""
    places = [
        {place for place, value in side.values.items() if np.isfinite(value)}
        for side in (first, second)
    ]
    if paired:
        places = [places[0] & places[1]] * 2
    compared = [
        side.settings[place]
        for side, side_places in zip((first, second), places, strict=True)
        for place in side_places
    ]
    texts = []
    for name in SETTINGS:
        values = [settings[name] for settings in compared if name in settings]
        least, most = min(values, default=0.0), max(values, default=0.0)
        if most - least > SETTINGS_RTOL * abs(most):
            texts.append(f"{name} {least:.3g} to {most:.3g}")
    return "; ".join(texts)


def _statistics(difference: Difference) -> dict[str, object]:
    return {
        "mean": difference.mean,
        "sd": difference.sd,
        "sem": difference.sem,
        "low": difference.limits[0],
        "high": difference.limits[1],
        "p_t": difference.p_t,
        "p_rank": difference.p_rank,
        "effect": difference.effect,
        "hedges_g": difference.hedges_g,
    }


def _paired_values(first: _Side, second: _Side) -> tuple[Array, Array, Counter[str]]:
    """Return both values at common repetitions, and counts of the others."""
    counts: Counter[str] = Counter()
    kept = []
    # Sorted, so that no bit depends on the order of the nodes.
    for place in sorted(first.nodes | second.nodes, key=repr):
        pair = [side.values[place] for side in (first, second) if place in side.values]
        if place in first.diverged | second.diverged:
            counts["diverged"] += 1
            continue
        counts["unconverged"] += place in first.unconverged | second.unconverged
        if len(pair) < 2:
            counts["missing"] += 1
        elif not np.isfinite(pair).all():
            counts["nonfinite"] += 1
        else:
            kept.append(pair)
    first_N, second_N = np.array(kept, dtype=np.float64).reshape(-1, 2).T
    return first_N, second_N, counts


def _unpaired_values(side: _Side) -> tuple[Array, Counter[str]]:
    ordered = [side.values[place] for place in sorted(side.values, key=repr)]
    values_N = np.array(ordered, dtype=np.float64)
    finite = np.isfinite(values_N)
    num_missing = len(side.nodes) - len(side.diverged) - len(values_N)
    counts = Counter(
        diverged=len(side.diverged),
        unconverged=len(side.unconverged),
        nonfinite=int((~finite).sum()),
        missing=num_missing,
    )
    return values_N[finite], counts
