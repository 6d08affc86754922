"""Kronecker factors of the curvature of networks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np
import torch

from curvflow.schemas.kinds.probes.kronecker.factors import FactorsParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.curvature.network_factors import (
    factors_bytes,
    network_factors,
)
from curvflow.tasks.curvature.network_operators import problem_key
from curvflow.tasks.curvature.stored_blocks import stored_blocks
from curvflow.tasks.networks.problems import grouped, probed_bytes
from curvflow.tasks.numerics.kronecker.factors import Factors
from curvflow.tasks.registry import Machine, computes


def _params(member: Member) -> FactorsParams:
    return cast("FactorsParams", member.params)


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: factors, and a pass over the data."""
    return factors_bytes(member, _params(member))


@computes("probe.factors", member_bytes=member_bytes, data_bytes=probed_bytes)
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
    found = network_factors(members, machine, [_params(member) for member in members])
    return [Outcome(_arrays(found, number)) for number in range(len(members))]


def _arrays(found: Factors, number: int) -> dict[str, Array]:
    operator = found.operator
    values = operator.eigenvalues[number].double().cpu().numpy()
    size = len(values)
    rounding = size**0.5 * torch.finfo(operator.dtype).eps
    blocks = [block.eigenpairs.values[number].double() for block in operator.blocks]
    stored = stored_blocks(operator, number)
    uses = [found.uses.get(b.name.split(" and ")[0], 1) for b in operator.blocks]
    return {
        "trace": np.array(values.sum()),
        "frobenius": np.array(np.linalg.norm(values)),
        "least": np.array(values[0]),
        "greatest": np.array(values[-1]),
        "block_trace": np.array([float(each.sum()) for each in blocks]),
        "block_norm": np.array([float(each.norm()) for each in blocks]),
        "num_uses": np.array(uses, dtype=np.int64),
        **_errors(found, number),
        "ritz_values": values[None],
        "ritz_weights": np.full((1, size), 1 / size),
        "ritz_residuals": np.full((1, size), rounding * np.abs(values).max()),
        "size": np.array(size, dtype=np.int64),
        "converged": np.array(bool(found.converged[number])),
        "num_backward": np.array(found.num_backward, dtype=np.int64),
        "num_matvecs": np.array(0, dtype=np.int64),
        **stored,
    }


def _errors(found: Factors, number: int) -> dict[str, Array]:
    """Return the relative errors of both factors of each block; NaN where none is."""
    errors: dict[str, list[float]] = {"left": [], "right": [], "labels": []}
    for block in found.operator.blocks:
        spread = found.spreads.get(block.name)
        for name, of_blocks in errors.items():
            error = getattr(spread, name)[number] if spread else torch.nan
            of_blocks.append(float(error))
    return {
        "left_rel_sem": np.array(errors["left"]),
        "right_rel_sem": np.array(errors["right"]),
        "label_rel_sem": np.array(errors["labels"]),
    }
