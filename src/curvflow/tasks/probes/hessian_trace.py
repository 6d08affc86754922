"""Trace of the loss Hessian by Hutchinson's estimator, whole and by layer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np

from curvflow.schemas.kinds.probes.hessian_trace import HessianTraceParams
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.curvature.network_operators import (
    batched_hessian,
    problem_key,
    problem_of,
    rows_together,
)
from curvflow.tasks.curvature.operators import block_of
from curvflow.tasks.networks.network import Layout
from curvflow.tasks.networks.problems import grouped, probed_bytes
from curvflow.tasks.numerics.estimators.intervals import student_interval
from curvflow.tasks.numerics.estimators.layer_intervals import layer_intervals
from curvflow.tasks.numerics.estimators.sketched_traces import TraceDraws, traces
from curvflow.tasks.registry import Machine, computes


def _params(member: Member) -> HessianTraceParams:
    return cast("HessianTraceParams", member.params)


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: a block of products and the data."""
    columns = block_of(member, _params(member).num_probes)
    rows = rows_together(member, _params(member))
    return problem_of(member).product_bytes(member.one("data"), columns, rows=rows)


@computes("probe.hessian_trace", member_bytes=member_bytes, data_bytes=probed_bytes)
def hessian_trace(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Estimate tr(H) as the mean of z.Hz over S random vectors z.

    Args:
        members: `weights` and `data`, and parameters that differ in the seed.
        machine: the device to compute on.

    Returns:
        Per member the trace, whole and by parameter tensor, with standard errors, and
        all draws.

    Raises:
        InputError: weights or products hold NaN or infinity.

    Reference:
        Hutchinson (1989), doi:10.1080/03610918908812806.
    """
    return grouped(members, problem_key, partial(_together, machine=machine))


def _together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    several = [_params(member) for member in members]
    params = several[0]
    layout = problem_of(members[0]).network.layout
    columns = block_of(members[0], params.num_probes)
    hessian = batched_hessian(
        members, machine, dtype=params.dtype, columns=columns, modes=several
    )
    estimates = traces(
        hessian,
        layout.sizes,
        [each.seed for each in several],
        method="hutchinson",
        num_probes=params.num_probes,
        distribution=params.distribution,
        block=columns,
    )
    return [_outcome(params, layout, draws) for draws in estimates]


def _outcome(params: HessianTraceParams, layout: Layout, draws: TraceDraws) -> Outcome:
    whole = draws.draws.sum(0)
    low_L, high_L = layer_intervals(draws, sum(layout.sizes), params.distribution)
    low, high = student_interval(whole.mean(), draws.sem, draws.freedom)
    return Outcome(
        {
            "trace": whole.mean().numpy(),
            "trace_sem": draws.sem.numpy(),
            "trace_low": low.numpy(),
            "trace_high": high.numpy(),
            "trace_draws": whole.numpy(),
            "layer": np.array(layout.names),
            "layer_trace": draws.draws.mean(1).numpy(),
            "layer_trace_sem": draws.layer_sem.numpy(),
            "layer_trace_low": low_L.numpy(),
            "layer_trace_high": high_L.numpy(),
            "num_matvecs": np.array(draws.num_matvecs, dtype=np.int64),
        }
    )
