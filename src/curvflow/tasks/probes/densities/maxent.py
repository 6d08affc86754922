"""Maximum-entropy spectral densities from moments."""

from __future__ import annotations

import math
from typing import TypedDict, cast

import numpy as np
import torch
from scipy.special import stdtrit

from curvflow.schemas.kinds.probes.densities.maxent import MaxentParams
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.curvature.measured_moments import MeasuredMoments, measured_moments
from curvflow.tasks.curvature.operators import atom_arrays
from curvflow.tasks.numerics.entropy.iterative_scaling import iterative_scaling
from curvflow.tasks.numerics.entropy.maxent import MaxEnt, Prior, prior
from curvflow.tasks.numerics.entropy.maxent import maxent as newton
from curvflow.tasks.numerics.estimators.intervals import HIGH
from curvflow.tasks.numerics.estimators.polynomials import Support
from curvflow.tasks.registry import Machine, computes_each


class _Settings(TypedDict):
    """Settings that two fits of one density share."""

    prior: Prior
    basis: str
    support: Support
    floor: float
    max_iterations: int


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
    given = measured_moments(node, params.num_moments)
    chosen = given.apart() if params.atoms == "apart" else given
    chosen = chosen.in_basis(params.basis)
    support = given.support
    means_K, covariance_KK = chosen.means[1:], chosen.covariance[1:, 1:]
    # A single run has no standard error, so the floor takes its place.
    errors_K = covariance_KK.diagonal().nan_to_num(nan=0.0).clamp_min(0).sqrt()
    interval = support if params.support is None else params.support
    settings = _Settings(
        prior=prior(params.prior, cast("Support", interval), params.num_points),
        basis=params.basis,
        support=support,
        floor=params.error_floor,
        max_iterations=params.max_iterations,
    )
    fitted = SOLVERS[params.solver](means_K, errors_K, **settings)
    noisy = bool((means_K.abs() < 2 * fitted.errors).double().mean() > 0.5)
    apart = atom_arrays(given.atoms) if params.atoms == "apart" else {}
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
            **_errors(fitted, chosen, is_apart=params.atoms == "apart"),
            **_interval(fitted, chosen, settings),
            **given.cumulative_bounds(fitted.prior.nodes),
            **given.num_draws,
        }
    )


def _errors(
    fitted: MaxEnt, of: MeasuredMoments, *, is_apart: bool
) -> dict[str, np.ndarray]:
    """Return the distribution function, and the errors of it and of the density."""
    errors = fitted.errors_of_masses(of.covariance[1:, 1:])
    cumulative_G, share = fitted.cumulative, 1.0
    if is_apart:
        share = of.share
        cumulative_G = of.below(fitted.prior.nodes, cumulative_G)
    return {
        "density_sem": (errors.masses / fitted.prior.lengths).numpy(),
        "cumulative": cumulative_G.numpy(),
        "cumulative_sem": (share * errors.cumulative).numpy(),
    }


def _interval(
    fitted: MaxEnt, of: MeasuredMoments, settings: _Settings
) -> dict[str, np.ndarray]:
    """Return an interval of the density that exact moments have."""
    means_K, covariance_KK = of.means[1:], of.covariance[1:, 1:]
    low_G = high_G = torch.full_like(fitted.masses, torch.nan)
    if covariance_KK.isfinite().all() and not math.isnan(of.freedom):
        met = newton(means_K, **settings, begin=fitted)
        if met.converged:
            quantile = float(stdtrit(of.freedom, HIGH))
            low_G, high_G = met.density_interval(covariance_KK, quantile)
    return {"density_low": low_G.numpy(), "density_high": high_G.numpy()}


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
