"""Maximum-entropy spectral densities from moments."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.maxent import MaxentParams
from curvflow.schemas.nodes import Member, NodeData, Outcome
from curvflow.tasks.curvature.operators import atom_arrays, atoms_of
from curvflow.tasks.numerics.estimators.iterative_scaling import iterative_scaling
from curvflow.tasks.numerics.estimators.maxent import MaxEnt, prior
from curvflow.tasks.numerics.estimators.maxent import maxent as newton
from curvflow.tasks.numerics.estimators.moments import atom_moments
from curvflow.tasks.numerics.estimators.polynomials import Support, converted
from curvflow.tasks.registry import Machine, computes_each

SOLVERS = {"newton": newton, "iterative_scaling": iterative_scaling}


@computes_each("probe.maxent")
def maxent(member: Member, machine: Machine) -> Outcome:
    """Find the density of maximum entropy with the measured moments.

    Args:
        member: `moments` with the covariance of their means.
        machine: not used: the problem is small.

    Returns:
        The density on its grid, its entropy, and flags.

    Raises:
        InputError: more moments are requested than measured, the support is empty, or
            there are no atoms to keep apart.

    Reference:
        Granziol (2020), Algorithm 1; docs/moments.md lists the differences.
    """
    params = cast("MaxentParams", member.params)
    node = member.one("moments")
    support = cast("Support", tuple(node["support"].tolist()))
    means_K, covariance_KK = _moments(params, node, support)
    # A single run has no standard error, so the floor takes its place.
    errors_K = covariance_KK.diagonal().nan_to_num(nan=0.0).clamp_min(0).sqrt()
    interval = support if params.support is None else params.support
    fitted = SOLVERS[params.solver](
        means_K,
        errors_K,
        prior=prior(params.prior, cast("Support", interval), params.num_points),
        basis=params.basis,
        support=support,
        floor=params.error_floor,
        max_iterations=params.max_iterations,
    )
    noisy = bool((means_K.abs() < 2 * fitted.errors).double().mean() > 0.5)
    apart = atom_arrays(atoms_of(node)) if params.atoms == "apart" else {}
    return Outcome(
        {
            **_arrays(fitted),
            **apart,
            "noisy": np.array(noisy),
            "size": np.array(node["size"]),
            "basis": np.array(params.basis),
            "basis_support": np.array(support),
            "prior": np.array(params.prior),
            "support": np.array(interval),
            "multipliers_covariance": fitted.multipliers_covariance(
                covariance_KK
            ).numpy(),
        }
    )


def _moments(
    params: MaxentParams, node: NodeData, support: Support
) -> tuple[Tensor, Tensor]:
    """Return moments of the orders 1 .. K and the covariance of their errors.

    Raises:
        InputError: fewer moments are measured than requested.
    """
    num_given = len(node["moments"]) - 1
    count = num_given if params.num_moments is None else params.num_moments
    if count > num_given:
        raise InputError(
            f"num_moments: expected at most the {num_given} moments given, got "
            f"{count}. "
            "Measure more of them in probe.moments."
        )
    means = torch.as_tensor(node["moments"], dtype=torch.float64)[: count + 1]
    covariance = torch.as_tensor(node["moments_covariance"], dtype=torch.float64)
    if params.atoms == "apart":
        means, covariance = _without_atoms(node, means, covariance)
    covariance = covariance[: count + 1, : count + 1]
    means_in_basis, change_of_basis = converted(
        means, str(node["basis"].item()), params.basis, support
    )
    turned = change_of_basis @ covariance @ change_of_basis.T
    return means_in_basis[1:], turned[1:, 1:]


def _without_atoms(
    node: NodeData, means: Tensor, covariance: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the moments of the eigenvalues that have not been taken out.

    Raises:
        InputError: none has been.
    """
    atoms, size = atoms_of(node), int(node["size"])
    if not atoms.total:
        raise InputError(
            "atoms: expected moments with eigenvalues taken out to set apart, got "
            "none. Set deflate in the probe.moments, or atoms to within."
        )
    is_chebyshev = str(node["basis"].item()) == "chebyshev"
    known = atom_moments(
        atoms,
        num_moments=len(means) - 1,
        support_2=torch.as_tensor(node["support"]) if is_chebyshev else None,
    )
    share = (size - atoms.total) / size
    return (means - known / size) / share, covariance / share**2


def _arrays(fitted: MaxEnt) -> dict[str, np.ndarray]:
    return {
        "grid": fitted.prior.nodes.numpy(),
        "density": fitted.density.numpy(),
        "mass": fitted.masses.numpy(),
        "entropy": np.array(fitted.entropy),
        "kl": np.array(fitted.kl),
        "dual": np.array(fitted.dual),
        "order": np.arange(1, len(fitted.slack) + 1, dtype=np.int64),
        "multipliers": fitted.multipliers.numpy(),
        "slack": fitted.slack.numpy(),
        "strain": np.array(fitted.strain),
        "residual": np.array(fitted.residual),
        "feasible": np.array(fitted.is_feasible),
        "converged": np.array(fitted.converged),
        "iterations": np.array(fitted.iterations, dtype=np.int64),
    }
