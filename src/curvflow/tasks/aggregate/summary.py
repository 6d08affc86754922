"""Statistics of measured quantities over axes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from curvflow.schemas.kinds.aggregate.summary import SummaryParams
from curvflow.schemas.nodes import Array, Member, NodeData, Outcome
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.bootstrap import Resampling
from curvflow.tasks.statistics.descriptive import (
    further_statistics,
    mean_interval,
    quantiles,
    statistics,
)
from curvflow.tasks.statistics.measurements import (
    Measured,
    chosen,
    judged,
    matrix,
    relied_on,
)


@computes_each("aggregate.summary")
def summary(member: Member, machine: Machine) -> Outcome:
    """Average every quantity over the nodes given; diverged ones are only counted.

    Args:
        member: the nodes of one or several stages, each quantity using those of its own
            stage; booleans count as 0 and 1, text is skipped.
        machine: not used.

    Returns:
        Name, units, mean, sd, sem, low, high, count, diverged and nonfinite per
        quantity, each of shape (quantity,), and what further statistics are asked for.

    Raises:
        InputError: a quantity asked for is no number of the stages given.
    """
    params = member.params
    assert isinstance(params, SummaryParams)
    nodes = relied_on(member.inputs["of"], params.unconverged)
    taken = chosen(nodes, params.quantities)
    several = Counter(one.variable.name for one in taken)
    blocks = [
        _rows(one, f"{one.stage}." if several[one.variable.name] > 1 else "", params)
        | _missing(one, nodes, params)
        for one in taken
    ]
    shared = {"quantile"}  # a coordinate, the same of all
    table = {
        name: blocks[0][name]
        if name in shared
        else np.concatenate([rows[name] for rows in blocks])
        for name in blocks[0]
    }
    return Outcome(judged(taken, table))


def _rows(one: Measured, prefix: str, params: SummaryParams) -> dict[str, Array]:
    elements = matrix(one)
    values_NE, present_NE = elements.values, elements.present
    found = statistics(values_NE)
    low, high = found.interval(params.confidence)
    if how := _resampling(params):
        low, high = mean_interval(values_NE, params.confidence, how)
    rows = len(elements.names)
    return {
        "quantity": np.array([prefix + name for name in elements.names]),
        "units": np.repeat([one.variable.units], rows),
        "mean": found.mean,
        "sd": found.sd,
        "sem": found.sem,
        "low": low,
        "high": high,
        "count": found.count.astype(np.int64),
        "diverged": np.full(rows, len(one.diverged), dtype=np.int64),
        "nonfinite": (present_NE & ~np.isfinite(values_NE)).sum(axis=0, dtype=np.int64),
        "unconverged": elements.doubtful.sum(axis=0, dtype=np.int64),
        **_further(values_NE, params),
    }


def _further(values_NE: Array, params: SummaryParams) -> dict[str, Array]:
    how = _resampling(params)
    names = [name for name in params.statistics if name != "missing"]
    found = further_statistics(values_NE, names, params.confidence, how)
    if params.quantiles:
        found |= quantiles(values_NE, params.quantiles, params.confidence, how)
    return found


def _missing(
    one: Measured, nodes: Sequence[NodeData], params: SummaryParams
) -> dict[str, Array]:
    if "missing" not in params.statistics:
        return {}
    # Also those without the variable, which not every node need have.
    own = {
        tuple(node.coords.items())
        for node in nodes
        if node.stage == one.stage and node.status == "ok"
    }
    present_NE = matrix(one).present
    return {"missing": (len(own) - present_NE.sum(axis=0)).astype(np.int64)}


def _resampling(params: SummaryParams) -> Resampling | None:
    if params.interval == "t":
        return None
    return Resampling(params.bootstrap, params.num_resamples, params.seed)
