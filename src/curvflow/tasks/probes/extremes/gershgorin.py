"""Bounds of spectra from the absolute row sums of dense matrices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.extremes.gershgorin import GershgorinParams
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.curvature.operators import (
    DENSE_BLOCK,
    TileOperator,
    batch_key,
    dense_matrices,
    product_bytes,
    shared_bytes,
    size_of,
    tile_operator,
)
from curvflow.tasks.networks.problems import grouped
from curvflow.tasks.registry import Machine, computes


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: products and three matrices."""
    size = size_of(member)
    return product_bytes(member, min(DENSE_BLOCK, size)) + 3 * 8 * size**2


@computes("probe.gershgorin", member_bytes=member_bytes, data_bytes=shared_bytes)
def gershgorin(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Bound eigenvalues by min_i (a_ii - r_i) and max_i (a_ii + r_i).

    r_i is the sum of |a_ij| over j other than i: of all columns for the whole matrix,
    of the columns of the block for the diagonal block of a parameter tensor.

    Args:
        members: an operator, and parameters that differ in the seed.
        machine: the device to compute on.

    Returns:
        Per member lower and upper bounds, (), of the blocks (layers,), and the largest
        absolute row sum outside each block, (layers,), all in the operator's unit.

    Raises:
        InputError: an operator is too large, or products hold NaN or infinity.

    Reference:
        Gerschgorin (1931), Izvestija Akademii Nauk SSSR 7, in real arithmetic: disks
        are intervals, as the matrices are symmetric.
    """
    for member in members:
        params = cast("GershgorinParams", member.params)
        if (size := size_of(member)) > params.max_size:
            raise InputError(
                f"max_size: expected an operator of dimension {params.max_size} or "
                f"less, got {size}. Choose layers, or raise max_size."
            )
    return grouped(members, batch_key, partial(_together, machine=machine))


def _together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    columns = min(DENSE_BLOCK, size_of(members[0]))
    tile = tile_operator(members, machine, columns=columns)
    matrices_MDD = dense_matrices(tile.operator).cpu()
    symmetric_MDD = (matrices_MDD + matrices_MDD.mT) / 2
    return [_outcome(A_DD, tile) for A_DD in symmetric_MDD]


def _outcome(A_DD: Tensor, tile: TileOperator) -> Outcome:
    blocks = [_block(rows_BD, at) for rows_BD, at in _rows(A_DD, tile.sizes)]
    lower, upper, layer_lower, layer_upper, coupling = torch.tensor(
        blocks, dtype=torch.float64
    ).T
    return Outcome(
        {
            "lower_bound": lower.min().numpy(),
            "upper_bound": upper.max().numpy(),
            "layer": np.array(tile.names),
            "layer_lower_bound": layer_lower.numpy(),
            "layer_upper_bound": layer_upper.numpy(),
            "layer_coupling": coupling.numpy(),
            "num_matvecs": np.array(len(A_DD), dtype=np.int64),
        }
    )


def _rows(A_DD: Tensor, sizes: Sequence[int]) -> Iterator[tuple[Tensor, slice]]:
    """Yield the rows of each block, and the columns of its diagonal block."""
    start = 0
    for size in sizes:
        at = slice(start, start + size)
        yield A_DD[at], at
        start += size


def _block(rows_BD: Tensor, at: slice) -> list[float]:
    """Return the bounds by whole rows and within the block, and the coupling."""
    diagonal_B = rows_BD[:, at].diagonal()
    within_B = rows_BD[:, at].abs().sum(1) - diagonal_B.abs()
    outside_B = rows_BD[:, : at.start].abs().sum(1) + rows_BD[:, at.stop :].abs().sum(1)
    radius_B = within_B + outside_B
    bounds = (
        (diagonal_B - radius_B).min(),
        (diagonal_B + radius_B).max(),
        (diagonal_B - within_B).min(),
        (diagonal_B + within_B).max(),
        outside_B.max(),
    )
    return [float(bound) for bound in bounds]
