"""Spectral densities of largest entropy."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.maxent import MaxentParams
from curvflow.schemas.nodes import Member, NodeData, Outcome
from curvflow.tasks.numerics.estimators.iterative_scaling import iterative_scaling
from curvflow.tasks.numerics.estimators.maxent import MaxEnt, prior
from curvflow.tasks.numerics.estimators.maxent import maxent as newton
from curvflow.tasks.numerics.estimators.polynomials import Support, converted
from curvflow.tasks.registry import Machine, computes_each

SOLVERS = {"newton": newton, "iterative_scaling": iterative_scaling}


@computes_each("probe.maxent")
def maxent(member: Member, machine: Machine) -> Outcome:
    """Find the density of largest entropy whose moments are those measured.

    Args:
        member: `moments`, with the covariance of these means.
        machine: not used: the problem is small.

    Returns:
        The density on its grid, its entropy, and flags.

    Raises:
        InputError: more moments are asked for than given, or the support is none.

    Reference:
        Granziol (2020), Algorithm 1; docs/moments.md has what is different.
    """
    params = cast("MaxentParams", member.params)
    node = member.one("moments")
    support = cast("Support", tuple(node["support"].tolist()))
    means_K, errors_K = _moments(params, node, support)
    interval = support if params.support is None else params.support
    found = SOLVERS[params.solver](
        means_K,
        errors_K,
        prior=prior(params.prior, cast("Support", interval), params.num_points),
        basis=params.basis,
        support=support,
        floor=params.error_floor,
        max_iterations=params.max_iterations,
    )
    noisy = bool((means_K.abs() < 2 * found.errors).double().mean() > 0.5)
    return Outcome(
        {**_arrays(found), "noisy": np.array(noisy), "size": np.array(node["size"])}
    )


def _moments(
    params: MaxentParams, node: NodeData, support: Support
) -> tuple[Tensor, Tensor]:
    """Return moments of the orders 1 .. K and their standard errors.

    Raises:
        InputError: fewer are given than asked for.
    """
    given = len(node["moments"]) - 1
    count = given if params.num_moments is None else params.num_moments
    if count > given:
        raise InputError(
            f"num_moments: expected at most the {given} moments given, got {count}. "
            "Measure more of them in probe.moments."
        )
    means = torch.as_tensor(node["moments"], dtype=torch.float64)[: count + 1]
    covariance = torch.as_tensor(node["moments_covariance"], dtype=torch.float64)
    # Of a single run no error is known: the floor takes its place.
    covariance = covariance[: count + 1, : count + 1].nan_to_num(nan=0.0)
    turned, turn = converted(means, str(node["basis"].item()), params.basis, support)
    variances = (turn @ covariance @ turn.T).diagonal().clamp_min(0)
    return turned[1:], variances.sqrt()[1:]


def _arrays(found: MaxEnt) -> dict[str, np.ndarray]:
    return {
        "grid": found.prior.nodes.numpy(),
        "density": found.density.numpy(),
        "mass": found.masses.numpy(),
        "entropy": np.array(found.entropy),
        "kl": np.array(found.kl),
        "dual": np.array(found.dual),
        "order": np.arange(1, len(found.slack) + 1, dtype=np.int64),
        "multipliers": found.multipliers.numpy(),
        "slack": found.slack.numpy(),
        "strain": np.array(found.strain),
        "residual": np.array(found.residual),
        "feasible": np.array(found.is_feasible),
        "converged": np.array(found.converged),
        "iterations": np.array(found.iterations, dtype=np.int64),
    }
