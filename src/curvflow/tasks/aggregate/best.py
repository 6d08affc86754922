"""The best setting by validation, and what is reported of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import numpy as np

from curvflow.schemas.kinds.aggregate.best import BestParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.cells import (
    Cell,
    Cells,
    Place,
    cells,
    finite,
    left_out,
    named,
    num_unconverged,
)
from curvflow.tasks.choices import Choice, Rows, choose, is_at_edge, nested
from curvflow.tasks.measurements import find_measured, judged, relied_on
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics import statistics


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
