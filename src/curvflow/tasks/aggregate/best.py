"""Best setting by validation, and the statistics reported for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.kinds.aggregate.best import BestParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.cells import (
    Cell,
    Cells,
    Labels,
    cells,
    exclusion_counts,
    finite_values,
    labels_text,
    num_unconverged,
)
from curvflow.tasks.statistics.descriptive import statistics
from curvflow.tasks.statistics.label_groups import are_numbers
from curvflow.tasks.statistics.measurements import (
    drop_unjudged_counts,
    find_measurement,
    mask_unconverged,
)

ROUNDING = 1e-12  # relative difference of means by the order of their terms
CellRows = Mapping[Labels, Mapping[Labels, Cell]]


@dataclass
class Choice:
    """A choice among candidates.

    Attributes:
        chosen: the chosen candidate; None if all are refused.
        refused: candidates with too few values.
        tied: other candidates with the same mean.
        close: other candidates within a standard error of the best, ties included.
    """

    chosen: Labels | None = None
    refused: list[Labels] = field(default_factory=list)
    tied: list[Labels] = field(default_factory=list)
    close: list[Labels] = field(default_factory=list)

    def verdict(self, candidate: Labels) -> str:
        """Return the verdict on a candidate."""
        if candidate == self.chosen:
            return "chosen"
        if candidate in self.refused:
            return "refused"
        return "tied" if candidate in self.tied else "not chosen"


def choose(
    rows: CellRows, repetitions: Collection[Labels], params: BestParams
) -> Choice:
    """Choose the candidate with the best mean over the given repetitions.

    Args:
        rows: cells of the deciding variable, by candidate and repetition.
        repetitions: repetitions that decide.
        params: goal, and the values that a candidate must have.

    Returns:
        The first of the best in the order of the candidates, and the other candidates
        by verdict.
    """
    choice = Choice()
    means, errors = {}, {}
    for candidate, row in rows.items():
        values = finite_values({r: c for r, c in row.items() if r in repetitions})
        least = 1.0 if params.diverged == "refuse" else params.least_share
        if not len(values) or len(values) / len(repetitions) < least:
            choice.refused.append(candidate)
            continue
        summary = statistics(values)
        sign = -1.0 if params.goal == "max" else 1.0
        means[candidate], errors[candidate] = (
            sign * float(summary.mean),
            float(summary.sem),
        )
    if not means:
        return choice
    least = min(means.values())
    slack = ROUNDING * max(map(abs, means.values()))
    tied = [candidate for candidate, mean in means.items() if mean <= least + slack]
    choice.chosen, choice.tied = tied[0], tied[1:]
    limit = least + max(slack, errors[choice.chosen])
    choice.close = [c for c, m in means.items() if m <= limit and c != choice.chosen]
    return choice


def nested(
    rows: CellRows, repetitions: Collection[Labels], params: BestParams
) -> dict[Labels, Labels | None]:
    """Choose for each repetition by cross-validation, without its fold.

    Args:
        rows: cells of the deciding variable.
        repetitions: all repetitions, in order.
        params: number of folds, to which repetitions are dealt in turn; None chooses on
            all repetitions.

    Returns:
        Repetition to chosen candidate; None where all are refused.

    Raises:
        InputError: there are fewer repetitions than folds.
    """
    ordered = [*repetitions]
    if params.folds is None:
        return dict.fromkeys(ordered, choose(rows, ordered, params).chosen)
    if params.folds > len(ordered):
        raise InputError(
            f"folds: expected at most the {len(ordered)} repetitions, got "
            f"{params.folds}. Lower it, or add repetitions."
        )
    chosen: dict[Labels, Labels | None] = {}
    for part in range(params.folds):
        held_out = ordered[part :: params.folds]
        others = [repetition for repetition in ordered if repetition not in held_out]
        chosen |= dict.fromkeys(held_out, choose(rows, others, params).chosen)
    return {repetition: chosen[repetition] for repetition in ordered}


def is_at_edge(chosen: Labels | None, candidates: Collection[Labels]) -> bool:
    """Return whether a chosen number is the least or the greatest candidate."""
    labels = [candidate[0] for candidate in candidates if len(candidate) == 1]
    if chosen is None or len(labels) < 3 or not are_numbers(labels):
        return False
    return chosen[0] in (min(labels, key=float), max(labels, key=float))


@computes_each("aggregate.best")
def best(member: Member, machine: Machine) -> Outcome:
    """Choose a setting by one variable, and report others of the chosen setting.

    Args:
        member: nodes of the stages that measure the variables.
        machine: not used.

    Returns:
        A row per variable and combination of `within`, and a row per candidate.

    Raises:
        InputError: a variable is not a scalar of one stage, or there are fewer
            repetitions than folds.

    Reference:
        Varma and Simon (2006), doi:10.1186/1471-2105-7-91, for choosing and reporting
        on different repetitions.
    """
    params = cast("BestParams", member.params)
    nodes = mask_unconverged(member.inputs["of"], params.unconverged)
    deciding_variable = find_measurement("by", params.by, nodes)
    measurements = [
        deciding_variable,
        *(find_measurement("report", name, nodes) for name in params.report),
    ]
    axes = (*params.within, *params.along)
    grids = [cells(measurement, axes, params.over) for measurement in measurements]
    rows: list[dict[str, object]] = []
    candidates: list[dict[str, object]] = []
    for group in dict.fromkeys(place[: len(params.within)] for place in grids[0]):
        deciding = _within(grids[0], group)
        repetitions = [*dict.fromkeys(r for row in deciding.values() for r in row)]
        choice = choose(deciding, repetitions, params)
        chosen = nested(deciding, repetitions, params)
        choice_columns = _choice_columns(choice, chosen, deciding, params)
        for measurement, grid in zip(measurements, grids, strict=True):
            name = measurement.variable.name
            group_text = labels_text(params.within, group)
            rows.append(
                {
                    "quantity": f"{name}: {group_text}" if group_text else name,
                    "units": measurement.variable.units,
                    **_reported(_within(grid, group), chosen, params),
                    **choice_columns,
                }
            )
        candidates += _candidates(choice, deciding, len(repetitions), group, params)
    return Outcome(
        drop_unjudged_counts(measurements, {**_table(rows), **_table(candidates)})
    )


def _within(grid: Cells, group: Labels) -> dict[Labels, dict[Labels, Cell]]:
    size = len(group)
    return {place[size:]: row for place, row in grid.items() if place[:size] == group}


def _reported(
    rows: CellRows, chosen: Mapping[Labels, Labels | None], params: BestParams
) -> dict[str, object]:
    values = {
        repetition: rows[candidate][repetition]
        for repetition, candidate in chosen.items()
        if candidate is not None and repetition in rows.get(candidate, {})
    }
    summary = statistics(finite_values(values))
    low, high = summary.interval(params.confidence)
    return {
        "mean": float(summary.mean),
        "sd": float(summary.sd),
        "sem": float(summary.sem),
        "low": float(low),
        "high": float(high),
        "count": int(summary.count),
        **exclusion_counts(values, len(chosen)),
        "unconverged": num_unconverged(values),
    }


def _choice_columns(
    choice: Choice,
    chosen: Mapping[Labels, Labels | None],
    rows: CellRows,
    params: BestParams,
) -> dict[str, object]:
    times = Counter(_name(candidate, params) for candidate in chosen.values())
    listed = ", ".join(f"{name or 'none'} ({n})" for name, n in times.most_common())
    return {
        "chosen": _name(choice.chosen, params),
        "choices": listed if params.folds else "",
        "num_candidates": len(rows),
        "num_refused": len(choice.refused),
        "num_tied": len(choice.tied),
        "num_close": len(choice.close),
        "at_edge": is_at_edge(choice.chosen, rows),
    }


def _name(candidate: Labels | None, params: BestParams) -> str:
    return "" if candidate is None else labels_text(params.along, candidate)


def _candidates(
    choice: Choice, rows: CellRows, expected: int, group: Labels, params: BestParams
) -> Iterator[dict[str, object]]:
    axes = (*params.within, *params.along)
    for candidate, row in rows.items():
        summary = statistics(finite_values(row))
        counts = exclusion_counts(row, expected) | {"unconverged": num_unconverged(row)}
        yield {
            "candidate": labels_text(axes, (*group, *candidate)),
            "candidate_mean": float(summary.mean),
            "candidate_sem": float(summary.sem),
            "candidate_count": int(summary.count),
            **{f"candidate_{name}": count for name, count in counts.items()},
            "verdict": choice.verdict(candidate),
        }


def _table(rows: Sequence[Mapping[str, object]]) -> dict[str, Array]:
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}
