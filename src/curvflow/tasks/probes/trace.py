"""Trace of a curvature operator by Hutchinson, Hutch++ or XTrace, and by layer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from curvflow.schemas.kinds.probes.trace import TraceParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.curvature.operators import (
    SEMIDEFINITE,
    TileOperator,
    batch_key,
    batches_at_once,
    block_of,
    for_all,
    product_bytes,
    sample_means,
    sample_means_bytes,
    shared_bytes,
    size_of,
    tile_operator,
)
from curvflow.tasks.curvature.stored_factors import (
    given_bytes,
    preconditioner_key,
    preconditioner_of,
)
from curvflow.tasks.networks.problems import Apart, grouped
from curvflow.tasks.numerics.estimators.batch_traces import (
    PAIR,
    BatchTrace,
    batch_traces,
)
from curvflow.tasks.numerics.estimators.controlled_traces import controlled_traces
from curvflow.tasks.numerics.estimators.intervals import (
    positive_interval,
    student_interval,
)
from curvflow.tasks.numerics.estimators.layer_intervals import layer_intervals
from curvflow.tasks.numerics.estimators.piloted_traces import (
    SKETCH_COPIES,
    most_sketched,
    piloted_traces,
)
from curvflow.tasks.numerics.estimators.sketched_traces import TraceDraws, traces
from curvflow.tasks.registry import Machine, computes

# Copies of all vectors that the methods hold at their peak: vectors, images, the basis
# of the range, its images, and products of these.
COPIES = {"hutchinson": 0, "hutch++": 8, "xtrace": 16, "auto": SKETCH_COPIES}


def _params(member: Member) -> TraceParams:
    return cast("TraceParams", member.params)


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: a block of products, all vectors."""
    params, size = _params(member), size_of(member)
    if params.probes_per == "batch":
        return sample_means_bytes(member, params.batch_size, columns=PAIR, passes=True)
    most, copies = params.most, COPIES[params.method]
    if params.method == "auto":
        most = min(most, most_sketched(size))
    columns = block_of(member, params.most)
    products = product_bytes(member, columns) + given_bytes(member)
    return products + 8 * copies * size * most


@computes("probe.trace", member_bytes=member_bytes, data_bytes=shared_bytes)
def trace(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Estimate tr(A), whole and by diagonal block.

    Args:
        members: inputs of an operator, and parameters that differ in the seed.
        machine: the device to compute on.

    Returns:
        Per member the trace with its standard error, and the draws.

    Raises:
        InputError: weights or products hold NaN or infinity.

    Reference:
        Hutchinson (1989), doi:10.1080/03610918908812806; Meyer et al. (2021),
        doi:10.1137/1.9781611976496.16; Epperly et al. (2024), doi:10.1137/23M1548323.
    """
    return grouped(members, _key, partial(_together, machine=machine))


def _key(member: Member) -> object:
    key = batch_key(member)
    return key if isinstance(key, Apart) else (key, preconditioner_key(member))


def _together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    params = _params(members[0])
    if params.probes_per == "batch":
        return _by_batches(members, machine)
    columns = block_of(members[0], params.most)
    tile = tile_operator(members, machine, columns=columns)
    control = preconditioner_of(members, machine, tile.operator.shape[1])
    seeds = [_params(member).seed for member in members]
    given: dict[str, Any] = {
        "num_probes": params.num_probes,
        "distribution": params.distribution,
        "block": columns,
        "rel_sem": params.rel_sem,
        "max_probes": params.most,
    }
    if control is not None:
        controlled = controlled_traces(
            tile.operator, control, tile.sizes, seeds, **given
        )
        return [_outcome(params, tile, draws) for draws in controlled]
    if params.method == "auto":
        piloted = piloted_traces(tile.operator, tile.sizes, seeds, **given)
        return [_outcome(params, tile, draws, method) for method, draws in piloted]
    plain = traces(tile.operator, tile.sizes, seeds, method=params.method, **given)
    return [_outcome(params, tile, draws) for draws in plain]


def _by_batches(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    params, seeds = _params(members[0]), [_params(member).seed for member in members]
    tile = sample_means(members, machine)
    estimates = batch_traces(
        tile.operator,
        tile.sizes,
        seeds[: tile.operator.shape[0]],
        batch_size=params.batch_size,
        num_probes=params.num_probes,
        distribution=params.distribution,
        batches_per_pass=batches_at_once(members[0]),
        rel_sem=params.rel_sem,
        max_probes=params.most,
    )
    outcomes = [_outcome(params, tile, draws) for draws in estimates]
    return for_all(members, outcomes)


def _outcome(
    params: TraceParams,
    tile: TileOperator,
    draws: TraceDraws | BatchTrace,
    method: str | None = None,
) -> Outcome:
    whole = draws.draws.sum(0)
    # By vectors the images tell the error; draws of batches spread, and are skewed.
    is_skewed = isinstance(draws, BatchTrace) and params.operator in SEMIDEFINITE
    interval = positive_interval if is_skewed else student_interval
    low_L, high_L = layer_intervals(draws, sum(tile.sizes), params.distribution)
    low, high = interval(whole.mean(), draws.sem, draws.freedom)
    taken: dict[str, Array] = {} if method is None else {"method": np.array(method)}
    if isinstance(draws, TraceDraws) and draws.control is not None:
        taken["coefficient"] = draws.control.coefficient.numpy()
        taken["variance_left"] = draws.control.left.numpy()
    return Outcome(
        {
            "trace": whole.mean().numpy(),
            "trace_sem": draws.sem.numpy(),
            "trace_low": low.numpy(),
            "trace_high": high.numpy(),
            "trace_vectors": draws.sem_vectors.numpy(),
            "trace_batches": draws.sem_batches.numpy(),
            "trace_draws": whole.numpy(),
            "num_draws": np.array(len(whole), dtype=np.int64),
            "reached": np.array(draws.reached),
            "layer": np.array(tile.names),
            "layer_trace": draws.draws.mean(1).numpy(),
            "layer_trace_sem": draws.layer_sem.numpy(),
            "layer_trace_low": low_L.numpy(),
            "layer_trace_high": high_L.numpy(),
            "num_matvecs": np.array(draws.num_matvecs, dtype=np.int64),
        }
        | taken
    )
