"""Results of several stages side by side."""

from __future__ import annotations

from typing import cast

from curvflow.schemas.kinds.aggregate.join import JoinParams
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.side_by_side import side_by_side


@computes_each("aggregate.join")
def join(member: Member, machine: Machine) -> Outcome:
    """Set the numbers of stages side by side, a row for each label of some axes.

    Args:
        member: the nodes of one or several stages, tables too.
        machine: not used.

    Returns:
        Values and what became of each cell, shape (row, column), and the file `wide`.

    Raises:
        InputError: no stage has all axes of the rows, or a name is no number's.
    """
    params = cast("JoinParams", member.params)
    return Outcome(side_by_side(member.inputs["of"], params).arrays())
