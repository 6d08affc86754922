"""The best setting by validation, and what is reported of it."""

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
    Place,
    cells,
    finite,
    left_out,
    named,
    num_unconverged,
)
from curvflow.tasks.statistics.descriptive import statistics
from curvflow.tasks.statistics.label_groups import are_numbers
from curvflow.tasks.statistics.measurements import find_measured, judged, relied_on

ROUNDING = 1e-12  # of means that are equal but for the order of their terms
Rows = Mapping[Place, Mapping[Place, Cell]]


@dataclass
class Choice:
    """A choice among candidates.

    Attributes:
        chosen: the candidate; None if none could be chosen.
        refused: candidates that could not be.
        tied: other candidates with the same mean.
        close: other candidates within a standard error of the best, tied ones too.
    """

    chosen: Place | None = None
    refused: list[Place] = field(default_factory=list)
    tied: list[Place] = field(default_factory=list)
    close: list[Place] = field(default_factory=list)

    def verdict(self, candidate: Place) -> str:
        """Return what became of a candidate."""
        if candidate == self.chosen:
            return "chosen"
        if candidate in self.refused:
            return "refused"
        return "tied" if candidate in self.tied else "not chosen"


def choose(rows: Rows, repetitions: Collection[Place], params: BestParams) -> Choice:
    """Choose the candidate of the best mean over some repetitions.

    Args:
        rows: cells of the variable that decides, by candidate and repetition.
        repetitions: those that decide.
        params: what is best, and how many values a candidate must have.

    Returns:
        The first of the best in the order of the candidates, and what else there was.
    """
    found = Choice()
    means, errors = {}, {}
    for candidate, row in rows.items():
        values = finite({r: c for r, c in row.items() if r in repetitions})
        least = 1.0 if params.diverged == "refuse" else params.least_share
        if not len(values) or len(values) / len(repetitions) < least:
            found.refused.append(candidate)
            continue
        of = statistics(values)
        sign = -1.0 if params.goal == "max" else 1.0
        means[candidate], errors[candidate] = sign * float(of.mean), float(of.sem)
    if not means:
        return found
    least = min(means.values())
    slack = ROUNDING * max(map(abs, means.values()))
    tied = [one for one, mean in means.items() if mean <= least + slack]
    found.chosen, found.tied = tied[0], tied[1:]
    limit = least + max(slack, errors[found.chosen])
    found.close = [c for c, m in means.items() if m <= limit and c != found.chosen]
    return found


def nested(
    rows: Rows, repetitions: Collection[Place], params: BestParams
) -> dict[Place, Place | None]:
    """Choose for each repetition without looking at it, or at its part.

    Args:
        rows: cells of the variable that decides.
        repetitions: all of them, in order.
        params: into how many parts they are dealt in turn; None chooses on all.

    Returns:
        Repetition to candidate chosen; None where none could be.

    Raises:
        InputError: there are fewer repetitions than parts.
    """
    every = [*repetitions]
    if params.folds is None:
        return dict.fromkeys(every, choose(rows, every, params).chosen)
    if params.folds > len(every):
        raise InputError(
            f"folds: expected at most the {len(every)} repetitions, got "
            f"{params.folds}. Lower it, or add repetitions."
        )
    chosen: dict[Place, Place | None] = {}
    for part in range(params.folds):
        own = every[part :: params.folds]
        others = [one for one in every if one not in own]
        chosen |= dict.fromkeys(own, choose(rows, others, params).chosen)
    return {repetition: chosen[repetition] for repetition in every}


def is_at_edge(chosen: Place | None, candidates: Collection[Place]) -> bool:
    """Return whether a choice of one number is the least or the greatest of several."""
    labels = [candidate[0] for candidate in candidates if len(candidate) == 1]
    if chosen is None or len(labels) < 3 or not are_numbers(labels):
        return False
    return chosen[0] in (min(labels, key=float), max(labels, key=float))


@computes_each("aggregate.best")
def best(member: Member, machine: Machine) -> Outcome:
    """Choose by one variable and report others of what is chosen.

    Args:
        member: the nodes of the stages that measure them.
        machine: not used.

    Returns:
        A row per variable and point of `within`, and one per candidate.

    Raises:
        InputError: a variable is no single number of one stage, or there are fewer
            repetitions than folds.

    Reference:
        Varma and Simon (2006), doi:10.1186/1471-2105-7-91, for choosing and reporting
        on different repetitions.
    """
    params = cast("BestParams", member.params)
    nodes = relied_on(member.inputs["of"], params.unconverged)
    by = find_measured("by", params.by, nodes)
    of = [by, *(find_measured("report", name, nodes) for name in params.report)]
    axes = (*params.within, *params.along)
    grids = [cells(one, axes, params.over) for one in of]
    rows: list[dict[str, object]] = []
    candidates: list[dict[str, object]] = []
    for group in dict.fromkeys(place[: len(params.within)] for place in grids[0]):
        deciding = _within(grids[0], group)
        repetitions = [*dict.fromkeys(r for row in deciding.values() for r in row)]
        choice = choose(deciding, repetitions, params)
        chosen = nested(deciding, repetitions, params)
        told = _told(choice, chosen, deciding, params)
        for one, grid in zip(of, grids, strict=True):
            name = one.variable.name
            behind = named(params.within, group)
            rows.append(
                {
                    "quantity": f"{name}: {behind}" if behind else name,
                    "units": one.variable.units,
                    **_reported(_within(grid, group), chosen, params),
                    **told,
                }
            )
        candidates += _candidates(choice, deciding, len(repetitions), group, params)
    return Outcome(judged(of, {**_table(rows), **_table(candidates)}))


def _within(grid: Cells, group: Place) -> dict[Place, dict[Place, Cell]]:
    size = len(group)
    return {place[size:]: row for place, row in grid.items() if place[:size] == group}


def _reported(
    rows: Rows, chosen: Mapping[Place, Place | None], params: BestParams
) -> dict[str, object]:
    own = {
        repetition: rows[candidate][repetition]
        for repetition, candidate in chosen.items()
        if candidate is not None and repetition in rows.get(candidate, {})
    }
    found = statistics(finite(own))
    low, high = found.interval(params.confidence)
    return {
        "mean": float(found.mean),
        "sd": float(found.sd),
        "sem": float(found.sem),
        "low": float(low),
        "high": float(high),
        "count": int(found.count),
        **left_out(own, len(chosen)),
        "unconverged": num_unconverged(own),
    }


def _told(
    choice: Choice,
    chosen: Mapping[Place, Place | None],
    rows: Rows,
    params: BestParams,
) -> dict[str, object]:
    times = Counter(_name(one, params) for one in chosen.values())
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


def _name(candidate: Place | None, params: BestParams) -> str:
    return "" if candidate is None else named(params.along, candidate)


def _candidates(
    choice: Choice, rows: Rows, expected: int, group: Place, params: BestParams
) -> Iterator[dict[str, object]]:
    axes = (*params.within, *params.along)
    for candidate, row in rows.items():
        found = statistics(finite(row))
        counts = left_out(row, expected) | {"unconverged": num_unconverged(row)}
        yield {
            "candidate": named(axes, (*group, *candidate)),
            "candidate_mean": float(found.mean),
            "candidate_sem": float(found.sem),
            "candidate_count": int(found.count),
            **{f"candidate_{name}": count for name, count in counts.items()},
            "verdict": choice.verdict(candidate),
        }


def _table(rows: Sequence[Mapping[str, object]]) -> dict[str, Array]:
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}
