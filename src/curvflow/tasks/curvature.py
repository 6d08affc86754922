"""From the members of a probe's tile to one operator over all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.nodes import Member
from curvflow.schemas.operators import OperatorParams
from curvflow.tasks.numerics.hessians import BatchedHessian
from curvflow.tasks.numerics.operators import BatchedOperator
from curvflow.tasks.problems import Problem, data_shapes, load_samples, read
from curvflow.tasks.registry import Machine


def network_text(member: Member) -> str:
    """Return the JSON that describes the network of a member's weights."""
    return str(member.one("weights")["network"].item())


def described(member: Member) -> Problem:
    """Return the network and the loss that a member's weights belong to."""
    return read(network_text(member))


def same_problem(member: Member) -> object:
    """Return what members of one batched operator must have in common."""
    return network_text(member), data_shapes(member.one("data"))


def stacked_weights(
    members: Sequence[Member], machine: Machine, *, dtype: str
) -> Tensor:
    """Bring the weights of all members to the device.

    Args:
        members: each with `weights` (D,).
        machine: where to.
        dtype: `float32` or `float64`.

    Returns:
        Parameters and statistics, (M, D + S).

    Raises:
        InputError: a weight is NaN or infinite.
    """
    weights_MW = np.stack([member.one("weights")["weights"] for member in members])
    if not np.isfinite(weights_MW).all():
        raise InputError(
            "weights: expected finite numbers, got NaN or infinity. Probe weights of "
            "training that has not diverged."
        )
    return torch.as_tensor(
        weights_MW, dtype=getattr(torch, dtype), device=machine.device
    )


def batched_operator(
    members: Sequence[Member],
    machine: Machine,
    params: Sequence[OperatorParams],
    *,
    names: tuple[str, ...],
    columns: int,
) -> BatchedOperator:
    """Build the curvature matrices that parameters ask for, of all members, as one.

    Args:
        members: each with `weights` and `data`, of the same problem.
        machine: where to compute.
        params: of each member; they differ in the seed at most.
        names: the parameter tensors whose diagonal block is looked at.
        columns: vectors that will be multiplied at once.

    Returns:
        The operator, shape (M, D, D), D the size of all tensors named.

    Raises:
        InputError: a weight is NaN or infinite.
    """
    asked = params[0]
    if (
        asked.operator != "hessian"
        or names != described(members[0]).network.layout.names
    ):
        raise InputError(
            f"operator: expected hessian of all layers, got {asked.operator}"
        )
    return batched_hessian(members, machine, dtype=asked.dtype, columns=columns)


def batched_hessian(
    members: Sequence[Member], machine: Machine, *, dtype: str, columns: int
) -> BatchedHessian:
    """Build the Hessians of the mean training loss of all members as one operator.

    The loss is the one trained with, averaged over the samples (for sse too); weight
    decay and other regularisers of the learning rule do not enter.

    Args:
        members: each with `weights` and `data`, of the same problem.
        machine: where to compute.
        dtype: precision of the products.
        columns: vectors that will be multiplied at once.

    Returns:
        The operator, shape (M, D, D).

    Raises:
        InputError: a weight is NaN or infinite.
    """
    problem = described(members[0])
    weights_MW = stacked_weights(members, machine, dtype=dtype)
    weights_MD, statistics_MS = problem.network.split(weights_MW)
    data = [member.one("data") for member in members]
    samples = load_samples(data, "", machine.device, weights_MD.dtype)
    on_cpu = weights_MD.device.type == "cpu"
    most = problem.models_per_pass(samples.count, columns) if on_cpu else len(members)
    return BatchedHessian(
        problem.losses,
        weights_MD,
        samples.inputs,
        samples.targets,
        fixed_MS=statistics_MS,
        batch_size=problem.rows_per_pass(columns),
        models_per_pass=max(2, most),
    )
