"""Kronecker factors of the curvature of networks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np
import torch

from curvflow.schemas.kinds.probes.kronecker.factors import FactorsParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.curvature.factor_memory import (
    copied_bytes,
    factors_bytes,
    sampled_bytes,
)
from curvflow.tasks.curvature.network_factors import network_factors
from curvflow.tasks.curvature.network_operators import problem_key
from curvflow.tasks.curvature.stored_factors import stored_blocks
from curvflow.tasks.networks.problems import grouped
from curvflow.tasks.numerics.kronecker.factors import Factors
from curvflow.tasks.numerics.kronecker.uses import UnlikeModelsError
from curvflow.tasks.registry import Machine, computes


def _params(member: Member) -> FactorsParams:
    return cast("FactorsParams", member.params)


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: factors, and a pass over the data."""
    return factors_bytes(member, _params(member))


def data_bytes(member: Member) -> int:
    """Return the bytes of the data, which members with one data set share."""
    return sampled_bytes(member, _params(member))


def other_data_bytes(member: Member) -> int:
    """Return the bytes of copies that members of different data sets take as well."""
    return copied_bytes(member, _params(member))


@computes(
    "probe.factors",
    member_bytes=member_bytes,
    data_bytes=data_bytes,
    copied_bytes=other_data_bytes,
)
def kronecker_factors(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Find the factors of all members in one sweep over the data.

    Args:
        members: `weights` and `data`, and parameters that differ in the seed.
        machine: the device to compute on.

    Returns:
        Per member the blocks by their eigenpairs, and what they amount to.

    Raises:
        InputError: weights hold NaN or infinity, the loss has no likelihood to draw
            from, or layers are not known or not a chain, where they must be.
    """
    return grouped(members, problem_key, partial(_together, machine=machine))


def _together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    try:
        computed = network_factors(
            members, machine, [_params(member) for member in members]
        )
    except UnlikeModelsError:
        # What others of the tile do must not decide on the blocks of a model.
        middle = len(members) // 2
        halves = members[:middle], members[middle:]
        return [outcome for half in halves for outcome in _together(half, machine)]
    numbers = _numbers(computed)  # of all members at once: each by itself takes as long
    shared = _shared(computed, numbers["ritz_values"].shape[-1])
    return [
        Outcome(
            {
                **{name: np.array(rows[number]) for name, rows in numbers.items()},
                **shared,
                **blocks,
            }
        )
        for number, blocks in enumerate(stored_blocks(computed.operator))
    ]


def _numbers(computed: Factors) -> dict[str, Array]:
    """Return what differs between members, a row of each."""
    operator = computed.operator
    values_MD = operator.eigenvalues.double().cpu().numpy()
    rounding = values_MD.shape[1] ** 0.5 * torch.finfo(operator.dtype).eps
    residuals_M1 = rounding * np.abs(values_MD).max(1, keepdims=True)
    blocks = [b.eigenpairs.values.double().flatten(1) for b in operator.blocks]
    return {
        "trace": values_MD.sum(1),
        "frobenius": np.linalg.norm(values_MD, axis=1),
        "least": values_MD[:, 0],
        "greatest": values_MD[:, -1],
        "block_trace": _stacked([each.sum(1) for each in blocks]),
        "block_norm": _stacked([each.norm(dim=1) for each in blocks]),
        **_errors(computed),
        "ritz_values": values_MD[:, None],
        "ritz_residuals": np.broadcast_to(residuals_M1, values_MD.shape)[:, None],
        "converged": computed.converged.cpu().numpy(),
    }


def _shared(computed: Factors, size: int) -> dict[str, Array]:
    """Return what members have in common, of as many parameters."""
    blocks = computed.operator.blocks
    uses = [computed.uses.get(b.name.split(" and ")[0], 1) for b in blocks]
    return {
        "num_uses": np.array(uses, dtype=np.int64),
        "ritz_weights": np.full((1, size), 1 / size),
        "size": np.array(size, dtype=np.int64),
        "num_backward": np.array(computed.num_backward, dtype=np.int64),
        "num_matvecs": np.array(0, dtype=np.int64),
    }


def _errors(computed: Factors) -> dict[str, Array]:
    """Return the relative errors of both factors of each block; NaN where none is."""
    names = {
        "left": "left_rel_sem",
        "right": "right_rel_sem",
        "labels": "label_rel_sem",
    }
    blocks = computed.operator.blocks
    nothing_M = torch.full((len(computed.converged),), torch.nan, dtype=torch.float64)
    spreads = [computed.spreads.get(block.name) for block in blocks]
    return {
        name: _stacked([getattr(s, part) if s else nothing_M for s in spreads])
        for part, name in names.items()
    }


def _stacked(parts: Sequence[torch.Tensor]) -> Array:
    """Return numbers (M,) of each block as (M, blocks)."""
    stacked: Array = torch.stack([part.double().cpu() for part in parts], 1).numpy()
    return stacked
