"""Diagonal of a curvature operator by random vectors, and its mean by layer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np

from curvflow.schemas.kinds.probes.diagonal import DiagonalParams
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.curvature.operators import (
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
from curvflow.tasks.networks.problems import grouped
from curvflow.tasks.numerics.estimators.batch_traces import PAIR
from curvflow.tasks.numerics.estimators.diagonals import (
    Diagonal,
    batch_diagonals,
    diagonals,
)
from curvflow.tasks.registry import Machine, computes

# Numbers kept of each entry: sums, and what is made of them.
KEPT = 24


def _params(member: Member) -> DiagonalParams:
    return cast("DiagonalParams", member.params)


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: a block of products, and the sums."""
    params, kept = _params(member), 8 * KEPT * size_of(member)
    if params.probes_per == "batch":
        batches = sample_means_bytes(
            member, params.batch_size, columns=PAIR, passes=True
        )
        return batches + kept
    columns = block_of(member, params.most)
    # Products with the vectors, and what is left of the images.
    terms = 2 * 8 * columns * size_of(member)
    return product_bytes(member, columns) + terms + kept


@computes("probe.diagonal", member_bytes=member_bytes, data_bytes=shared_bytes)
def diagonal(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Estimate the diagonal of A without bias.

    Args:
        members: inputs of an operator, and parameters that differ in the seed.
        machine: the device to compute on.

    Returns:
        Per member the entries with standard errors and intervals, and means by layer.

    Raises:
        InputError: weights or products hold NaN or infinity.

    Reference:
        Bekas, Kokiopoulou and Saad (2007), doi:10.1016/j.apnum.2007.01.003.
    """
    return grouped(members, batch_key, partial(_together, machine=machine))


def _together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    params, seeds = _params(members[0]), [_params(member).seed for member in members]
    if params.probes_per == "data":
        columns = block_of(members[0], params.most)
        tile = tile_operator(members, machine, columns=columns)
        estimates = diagonals(
            tile.operator,
            tile.sizes,
            seeds,
            num_probes=params.num_probes,
            distribution=params.distribution,
            block=columns,
            rel_sem=params.rel_sem,
            max_probes=params.most,
        )
        return [_outcome(tile, estimated) for estimated in estimates]
    tile = sample_means(members, machine)
    estimates = batch_diagonals(
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
    return for_all(members, [_outcome(tile, estimated) for estimated in estimates])


def _outcome(tile: TileOperator, estimated: Diagonal) -> Outcome:
    return Outcome(
        {
            "diagonal": estimated.value.numpy(),
            "diagonal_sem": estimated.sem.numpy(),
            "diagonal_low": estimated.low.numpy(),
            "diagonal_high": estimated.high.numpy(),
            "relative_error": estimated.rel_sem.numpy(),
            "reached": np.array(estimated.reached),
            "layer": np.array(tile.names),
            "layer_size": np.array(tile.sizes, dtype=np.int64),
            "layer_diagonal_mean": estimated.layer_mean.numpy(),
            "layer_diagonal_sem": estimated.layer_sem.numpy(),
            "layer_diagonal_mean_low": estimated.layer_low.numpy(),
            "layer_diagonal_mean_high": estimated.layer_high.numpy(),
            "num_matvecs": np.array(estimated.num_matvecs, dtype=np.int64),
        }
    )
