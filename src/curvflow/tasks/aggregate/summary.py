"""Statistics of measured quantities over axes."""

from __future__ import annotations

from collections import Counter

import numpy as np

from curvflow.schemas.kinds.aggregate.summary import SummaryParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.elements import chosen, matrix
from curvflow.tasks.measurements import Measured, measured
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics import statistics


@computes_each("aggregate.summary")
def summary(member: Member, machine: Machine) -> Outcome:
    """Average every quantity over the nodes given; diverged ones are only counted.

    Args:
        member: the nodes of one or several stages, each quantity using those of its own
            stage; booleans count as 0 and 1, text is skipped.
        machine: not used.

    Returns:
        Name, units, mean, sd, sem, low, high, count, diverged and nonfinite per
        quantity, each of shape (quantity,).

    Raises:
        InputError: a quantity asked for is no number of the stages given.
    """
    params = member.params
    assert isinstance(params, SummaryParams)
    taken = chosen(list(measured(member.inputs["of"])), params.quantities)
    several = Counter(one.variable.name for one in taken)
    blocks = [
        _rows(
            one,
            prefix=f"{one.stage}." if several[one.variable.name] > 1 else "",
            confidence=params.confidence,
        )
        for one in taken
    ]
    return Outcome(
        {name: np.concatenate([rows[name] for rows in blocks]) for name in blocks[0]}
    )


def _rows(one: Measured, *, prefix: str, confidence: float) -> dict[str, Array]:
    names, values_NE, present_NE = matrix(one)
    found = statistics(values_NE)
    low, high = found.interval(confidence)
    rows = len(names)
    return {
        "quantity": np.array([prefix + name for name in names]),
        "units": np.repeat([one.variable.units], rows),
        "mean": found.mean,
        "sd": found.sd,
        "sem": found.sem,
        "low": low,
        "high": high,
        "count": found.count.astype(np.int64),
        "diverged": np.full(rows, len(one.diverged), dtype=np.int64),
        "nonfinite": (present_NE & ~np.isfinite(values_NE)).sum(axis=0, dtype=np.int64),
    }
