"""Squared Frobenius norm of a curvature operator, by products with random vectors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np

from curvflow.schemas.kinds.probes.squared_norm import SquaredNormParams
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.curvature.operators import (
    batch_key,
    batches_at_once,
    for_all,
    product_bytes,
    sample_means,
    sample_means_bytes,
    shared_bytes,
    tile_operator,
)
from curvflow.tasks.networks.problems import grouped
from curvflow.tasks.numerics.estimators.intervals import (
    Interval,
    positive_interval,
    wider_interval,
)
from curvflow.tasks.numerics.estimators.sketched_traces import TraceDraws
from curvflow.tasks.numerics.estimators.squared_norms import (
    batch_squared_norms,
    squared_norms,
)
from curvflow.tasks.registry import Machine, computes

# Vectors multiplied in one pass; a constant, so that sums keep their order.
BLOCK = 16


def _params(member: Member) -> SquaredNormParams:
    return cast("SquaredNormParams", member.params)


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: a block of products, or of batches."""
    params = _params(member)
    if params.probes_per == "batch":
        return sample_means_bytes(member, params.batch_size, columns=1)
    return product_bytes(member, min(BLOCK, params.most))


@computes("probe.squared_norm", member_bytes=member_bytes, data_bytes=shared_bytes)
def squared_norm(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Estimate ||A||_F^2 without bias.

    Args:
        members: inputs of an operator, and parameters that differ in the seed.
        machine: the device to compute on.

    Returns:
        Per member the squared norm with its standard error, and the draws.

    Raises:
        InputError: weights or products hold NaN or infinity, or there are fewer samples
            than two batches.

    Reference:
        Hutchinson (1989), doi:10.1080/03610918908812806; Hoeffding (1948),
        doi:10.1214/aoms/1177730196.
    """
    return grouped(members, batch_key, partial(_together, machine=machine))


def _together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    params, seeds = _params(members[0]), [_params(member).seed for member in members]
    if params.probes_per == "data":
        tile = tile_operator(members, machine, columns=min(BLOCK, params.most))
        estimates = squared_norms(
            tile.operator,
            seeds,
            num_probes=params.num_probes,
            distribution=params.distribution,
            block=BLOCK,
            rel_sem=params.rel_sem,
            max_probes=params.most,
        )
        return [_outcome(draws, positive_interval) for draws in estimates]
    operator = sample_means(members, machine).operator
    estimates = batch_squared_norms(
        operator,
        seeds[: operator.shape[0]],
        batch_size=params.batch_size,
        num_batches=params.num_batches,
        num_probes=params.num_probes,
        distribution=params.distribution,
        batches_per_pass=batches_at_once(members[0]),
        rel_sem=params.rel_sem,
        max_probes=params.most,
    )
    # Skewed as lengths are; pairs of batches may have products below zero, too.
    outcomes = [_outcome(draws, wider_interval) for draws in estimates]
    return for_all(members, outcomes)


def _outcome(draws: TraceDraws, interval: Interval) -> Outcome:
    whole = draws.draws.sum(0)
    low, high = interval(whole.mean(), draws.sem, draws.freedom)
    return Outcome(
        {
            "squared_norm": whole.mean().numpy(),
            "squared_norm_sem": draws.sem.numpy(),
            "squared_norm_low": low.numpy(),
            "squared_norm_high": high.numpy(),
            "squared_norm_draws": whole.numpy(),
            "num_draws": np.array(len(whole), dtype=np.int64),
            "reached": np.array(draws.reached),
            "num_matvecs": np.array(draws.num_matvecs, dtype=np.int64),
        }
    )
