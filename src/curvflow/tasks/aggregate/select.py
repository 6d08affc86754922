"""Selection of rows and columns of a joined table."""

from __future__ import annotations

from typing import cast

import numpy as np

from curvflow.errors import InputError, nearest
from curvflow.schemas.kinds.aggregate.select import Condition, SelectParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.cells import Labels
from curvflow.tasks.statistics.joined_tables import JoinedTable, join_table


@computes_each("aggregate.select")
def select(member: Member, machine: Machine) -> Outcome:
    """Keep the rows at the given labels that meet the conditions.

    Args:
        member: nodes of one or several stages, tables included.
        machine: not used.

    Returns:
        Values and status of each cell, shape (row, column), the file `wide`, and the
        numbers of rows in all, kept, and undecided.

    Raises:
        InputError: no stage has all axes of the rows, a name is not that of a number,
            or a condition names no column.
    """
    params = cast("SelectParams", member.params)
    sheet = join_table(member.inputs["of"], params)
    num_rows = len(sheet.places)
    sheet = sheet.at([n for n, p in enumerate(sheet.places) if _has_labels(p, params)])
    met, undecided = _meets_conditions(sheet, params)
    kept = sheet.at(np.flatnonzero(met).tolist())
    counts = {
        "num_rows": num_rows,
        "num_kept": int(met.sum()),
        "num_undecided": undecided,
    }
    return Outcome(
        {**kept.arrays(), **{name: np.array(count) for name, count in counts.items()}}
    )


def _has_labels(place: Labels, params: SelectParams) -> bool:
    for axis, label in zip(params.rows, place, strict=True):
        wanted = params.at.get(axis, label)
        if label not in (wanted if isinstance(wanted, tuple) else (wanted,)):
            return False
    return True


def _meets_conditions(sheet: JoinedTable, params: SelectParams) -> tuple[Array, int]:
    """Return a mask of the rows that meet all conditions, and the number undecided."""
    met = np.ones(len(sheet.places), dtype=bool)
    known = met.copy()
    for name, condition in params.where.items():
        if name not in sheet.columns:
            raise InputError(
                f"where: expected a column of the table, got '{name}'. "
                f"{nearest(name, sheet.columns)}"
            )
        column = list(sheet.columns).index(name)
        known &= sheet.cells[:, column] == "ok"
        met &= _meets(sheet.values[:, column], condition)
    return met & known, int((~known).sum())


def _meets(values: Array, condition: Condition) -> Array:
    holds = np.isfinite(values)
    if condition.above is not None:
        holds &= values > condition.above
    if condition.below is not None:
        holds &= values < condition.below
    if condition.equals is not None:
        holds &= values == condition.equals
    return holds
