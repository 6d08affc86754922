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
    Measurement,
    drop_unjudged_counts,
    element_matrix,
    mask_unconverged,
    select_measurements,
)


@computes_each("aggregate.summary")
def summary(member: Member, machine: Machine) -> Outcome:
    """Average every quantity over the given nodes; diverged nodes are only counted.

    Args:
        member: nodes of one or several stages; each quantity uses the nodes of its
            stage; booleans count as 0 and 1, text is skipped.
        machine: not used.

    Returns:
        Name, units, mean, sd, sem, low, high, count, diverged and nonfinite per
        quantity, each of shape (quantity,), and the requested further statistics.

    Raises:
        InputError: a requested quantity is not a number of these stages.
    """
    params = member.params
    assert isinstance(params, SummaryParams)
    nodes = mask_unconverged(member.inputs["of"], params.unconverged)
    measurements = select_measurements(nodes, params.quantities)
    stage_counts = Counter(m.variable.name for m in measurements)
    blocks = [
        _rows(m, f"{m.stage}." if stage_counts[m.variable.name] > 1 else "", params)
        | _missing(m, nodes, params)
        for m in measurements
    ]
    shared = {"quantile"}  # a coordinate, the same of all
    table = {
        name: blocks[0][name]
        if name in shared
        else np.concatenate([rows[name] for rows in blocks])
        for name in blocks[0]
    }
    return Outcome(drop_unjudged_counts(measurements, table))


def _rows(
    measurement: Measurement, prefix: str, params: SummaryParams
) -> dict[str, Array]:
    elements = element_matrix(measurement)
    values_NE, present_NE = elements.values, elements.present
    summary = statistics(values_NE)
    low, high = summary.interval(params.confidence)
    if resampling := _resampling(params):
        low, high = mean_interval(values_NE, params.confidence, resampling)
    rows = len(elements.names)
    return {
        "quantity": np.array([prefix + name for name in elements.names]),
        "units": np.repeat([measurement.variable.units], rows),
        "mean": summary.mean,
        "sd": summary.sd,
        "sem": summary.sem,
        "low": low,
        "high": high,
        "count": summary.count.astype(np.int64),
        "diverged": np.full(rows, len(measurement.diverged), dtype=np.int64),
        "nonfinite": (present_NE & ~np.isfinite(values_NE)).sum(axis=0, dtype=np.int64),
        "unconverged": elements.unconverged.sum(axis=0, dtype=np.int64),
        **_further(values_NE, params),
    }


def _further(values_NE: Array, params: SummaryParams) -> dict[str, Array]:
    resampling = _resampling(params)
    names = [name for name in params.statistics if name != "missing"]
    table = further_statistics(values_NE, names, params.confidence, resampling)
    if params.quantiles:
        table |= quantiles(values_NE, params.quantiles, params.confidence, resampling)
    return table


def _missing(
    measurement: Measurement, nodes: Sequence[NodeData], params: SummaryParams
) -> dict[str, Array]:
    if "missing" not in params.statistics:
        return {}
    # Nodes without an optional variable count too.
    node_coords = {
        tuple(node.coords.items())
        for node in nodes
        if node.stage == measurement.stage and node.status == "ok"
    }
    present_NE = element_matrix(measurement).present
    return {"missing": (len(node_coords) - present_NE.sum(axis=0)).astype(np.int64)}


def _resampling(params: SummaryParams) -> Resampling | None:
    if params.interval == "t":
        return None
    return Resampling(params.bootstrap, params.num_resamples, params.seed)
