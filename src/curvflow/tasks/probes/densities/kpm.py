"""Spectral densities by the kernel polynomial method."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.schemas.kinds.probes.densities.kpm import KpmParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.curvature.measured_moments import measured_moments
from curvflow.tasks.curvature.operators import atom_arrays
from curvflow.tasks.numerics.entropy.maxent import check_finite
from curvflow.tasks.numerics.estimators.cumulatives import (
    damping,
    linear_errors,
    series,
    summed_series,
)
from curvflow.tasks.numerics.estimators.intervals import student_interval
from curvflow.tasks.registry import Machine, computes_each


@computes_each("probe.kpm")
def kpm(member: Member, machine: Machine) -> Outcome:
    """Sum a spectrum's damped Chebyshev series, and return the errors of the sums.

    Args:
        member: `moments` with the covariance of their means.
        machine: not used: the problem is small.

    Returns:
        The density and the distribution function on a grid.

    Reference:
        Weisse et al. (2006), doi:10.1103/RevModPhys.78.275, sections II.B and II.C.
    """
    params = cast("KpmParams", member.params)
    given = measured_moments(member.one("moments"), params.num_moments)
    is_apart = params.atoms == "apart"
    chosen = (given.apart() if is_apart else given).in_basis("chebyshev")
    check_finite(chosen.means, torch.zeros_like(chosen.means))
    low, high = given.support
    number_G = torch.arange(params.num_points, dtype=torch.float64)
    # Ascending points of Gauss's rule, of which each has the same weight.
    theta_G = torch.pi * (1 - (number_G + 0.5) / params.num_points)
    grid_G = (low + high) / 2 + (high - low) / 2 * torch.cos(theta_G)
    length_G = (torch.pi * (high - low) / 2) * torch.sin(theta_G)
    factors_K = damping(params.kernel, len(chosen.means) - 1)
    rows_GK, sums_GK = series(theta_G, factors_K), summed_series(theta_G, factors_K)
    density_G = rows_GK @ chosen.means / length_G
    sem_G = linear_errors(rows_GK, chosen.covariance) / length_G
    share = chosen.share if is_apart else 1.0
    cumulative_G = sums_GK @ chosen.means
    if is_apart:
        cumulative_G = chosen.below(grid_G, cumulative_G)
    return Outcome(
        {
            "grid": grid_G.numpy(),
            "density": density_G.numpy(),
            "density_sem": sem_G.numpy(),
            **_interval(density_G, sem_G, chosen.freedom, params),
            "mass": (rows_GK @ chosen.means / params.num_points).numpy(),
            "cumulative": cumulative_G.numpy(),
            "cumulative_sem": (
                share * linear_errors(sums_GK, chosen.covariance)
            ).numpy(),
            **given.cumulative_bounds(grid_G),
            **(atom_arrays(given.atoms) if is_apart else {}),
            "support": np.array(given.support),
            "size": np.array(given.size),
            **given.num_draws,
        }
    )


def _interval(
    density_G: Tensor, sem_G: Tensor, freedom: float, params: KpmParams
) -> dict[str, Array]:
    low_G, high_G = student_interval(density_G, sem_G, freedom)
    if params.kernel != "none":  # with it there is nothing below zero
        low_G = low_G.clamp_min(0)
    return {"density_low": low_G.numpy(), "density_high": high_G.numpy()}
