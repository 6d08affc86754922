"""Join of the results of several stages into one table."""

from __future__ import annotations

from typing import cast

from curvflow.schemas.kinds.aggregate.join import JoinParams
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.joined_tables import join_table


@computes_each("aggregate.join")
def join(member: Member, machine: Machine) -> Outcome:
    """Join the numbers of stages into a table with a row per combination of labels.

    Args:
        member: nodes of one or several stages, tables included.
        machine: not used.

    Returns:
        Values and status of each cell, shape (row, column), and the file `wide`.

    Raises:
        InputError: no stage has all axes of the rows, or a name is not that of a
            number.
    """
    params = cast("JoinParams", member.params)
    return Outcome(join_table(member.inputs["of"], params).arrays())
