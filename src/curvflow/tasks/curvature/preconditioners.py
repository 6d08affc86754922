"""Stored Kronecker factors that stand for an operator."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from curvflow.errors import InputError
from curvflow.schemas.nodes import Member, NodeData
from curvflow.tasks.curvature.stored_blocks import block_operator, factors_key
from curvflow.tasks.numerics.kronecker.blocks import BlockOperator
from curvflow.tasks.registry import Machine

PRECONDITIONER = "preconditioner"


def preconditioner_of(
    members: Sequence[Member], machine: Machine, size: int
) -> BlockOperator | None:
    """Return the factors given with an operator, or None.

    Args:
        members: of one `preconditioner_key`.
        machine: the device to compute on.
        size: parameters of their operator, D.

    Returns:
        The factors in double precision, (M, D, D).

    Raises:
        InputError: the factors are of other parameters.
    """
    if PRECONDITIONER not in members[0].inputs:
        return None
    nodes = [member.one(PRECONDITIONER) for member in members]
    return given_factors(nodes, machine, size)


def given_factors(
    nodes: Sequence[NodeData], machine: Machine, size: int
) -> BlockOperator:
    """Return factors that stand for an operator.

    Args:
        nodes: of each model, of one `factors_key`.
        machine: the device to compute on.
        size: parameters of their operator, D.

    Returns:
        The factors in double precision, (M, D, D).

    Raises:
        InputError: the factors are of other parameters.
    """
    blocks = block_operator(nodes, machine.device, torch.float64)
    if blocks.shape[1] != size:
        raise InputError(
            f"preconditioner: expected factors of {size} parameters, got "
            f"'{nodes[0].stage}' of {blocks.shape[1]}. Give both the same layers."
        )
    return blocks


def preconditioner_key(member: Member) -> object:
    """Return what members share whose factors are one batched operator."""
    if PRECONDITIONER not in member.inputs:
        return None
    return factors_key(member.one(PRECONDITIONER))


def given_bytes(member: Member) -> int:
    """Return the bytes of one member's factors: as stored, as blocks, at work."""
    if PRECONDITIONER not in member.inputs:
        return 0
    arrays = member.one(PRECONDITIONER).arrays.values()
    return 3 * sum(array.nbytes for array in arrays)
