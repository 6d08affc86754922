"""Rows and columns of results."""

from __future__ import annotations

from typing import cast

import numpy as np

from curvflow.errors import InputError, nearest
from curvflow.schemas.kinds.aggregate.select import Condition, SelectParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.cells import Place
from curvflow.tasks.statistics.side_by_side import Sheet, side_by_side


@computes_each("aggregate.select")
def select(member: Member, machine: Machine) -> Outcome:
    """Keep the rows at some labels, and those at which conditions hold.

    Args:
        member: the nodes of one or several stages, tables too.
        machine: not used.

    Returns:
        Values and what became of each cell, shape (row, column), the file `wide`, and
        how many rows there were, are kept, and could not be decided.

    Raises:
        InputError: no stage has all axes of the rows, a name is no number's, or a
            condition is of no column.
    """
    params = cast("SelectParams", member.params)
    sheet = side_by_side(member.inputs["of"], params)
    found = len(sheet.places)
    sheet = sheet.at([n for n, p in enumerate(sheet.places) if _is_at(p, params)])
    met, undecided = _met(sheet, params)
    kept = sheet.at(np.flatnonzero(met).tolist())
    counts = {"num_rows": found, "num_kept": int(met.sum()), "num_undecided": undecided}
    return Outcome(
        {**kept.arrays(), **{name: np.array(count) for name, count in counts.items()}}
    )


def _is_at(place: Place, params: SelectParams) -> bool:
    for axis, label in zip(params.rows, place, strict=True):
        wanted = params.at.get(axis, label)
        if label not in (wanted if isinstance(wanted, tuple) else (wanted,)):
            return False
    return True


def _met(sheet: Sheet, params: SelectParams) -> tuple[Array, int]:
    """Return which rows meet all conditions, and how many cannot be decided."""
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
        met &= _holds(sheet.values[:, column], condition)
    return met & known, int((~known).sum())


def _holds(values: Array, condition: Condition) -> Array:
    holds = np.isfinite(values)
    if condition.above is not None:
        holds &= values > condition.above
    if condition.below is not None:
        holds &= values < condition.below
    if condition.equals is not None:
        holds &= values == condition.equals
    return holds
