"""Norms of the weights, whole and by layer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.curvature.network_operators import problem_of, stacked_weights
from curvflow.tasks.networks.problems import grouped
from curvflow.tasks.registry import Machine, computes


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: its weights and a copy."""
    return 2 * member.one("weights")["weights"].nbytes + 4096


@computes("probe.norms", member_bytes=member_bytes)
def norms(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Measure the weights of each member, whole and by parameter tensor.

    Args:
        members: `weights`.
        machine: the device to compute on.

    Returns:
        Per member the norms and the largest magnitude.

    Raises:
        InputError: weights hold NaN or infinity.
    """

    def batch_key(member: Member) -> object:
        return problem_of(member).text

    return grouped(members, batch_key, partial(_together, machine=machine))


def _together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    network = problem_of(members[0]).network
    layout = network.layout
    weights_MW = stacked_weights(members, machine, dtype="float64")
    weights_MD, _ = network.split(weights_MW)
    layer_ML = layout.norms(weights_MD).cpu()
    whole_M, largest_M = weights_MD.norm(dim=1).cpu(), weights_MD.abs().amax(1).cpu()
    return [
        Outcome(
            {
                "norm_l2": whole_M[number].numpy(),
                "norm_tensor_sum": layer_ML[number].sum().numpy(),
                "max_abs": largest_M[number].numpy(),
                "layer": np.array(layout.names),
                "layer_norm": layer_ML[number].numpy(),
            }
        )
        for number in range(len(members))
    ]
