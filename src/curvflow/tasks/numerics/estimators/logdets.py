"""Log-determinants of positive definite operators from Lanczos runs.

Every estimate is a mean over runs, each with a draw of its own, so that each has a
standard error; `gap` shows what is wrong for all runs alike. Further letters: S
runs, K nodes of a run or orders.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from curvflow.tasks.numerics.estimators.maxent import maxent, prior
from curvflow.tasks.numerics.estimators.polynomials import Support, polynomials
from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.numerics.krylov.quadrature import nodes, radau_rule

NUM_NODES = 2000


@dataclass(frozen=True)
class Controls:
    """Quantities of each run whose mean is known, which take noise off.

    Attributes:
        draws: of each run, (S, C).
        means: known, (C,).
    """

    draws: Tensor
    means: Tensor


@dataclass(frozen=True)
class LogDet:
    """An estimate of log det A.

    Attributes:
        draws: of each run, (S,).
        sem: standard error of their mean; NaN for one run.
        gap: how far another rule from the same runs is from the mean.
        strain: of the moments, in standard errors, where a density is fitted; or NaN.
        converged: whether what had to converge did.
    """

    draws: Tensor
    sem: float
    gap: float
    strain: float
    converged: bool

    @property
    def value(self) -> float:
        """The mean."""
        return float(self.draws.mean())


def _reported(draws_S: Tensor, other: float, *, used: int = 1) -> LogDet:
    """Return an estimate whose draws have `used` up some degrees of freedom."""
    left = len(draws_S) - used
    spread = float((draws_S - draws_S.mean()).square().sum())
    sem = math.sqrt(spread / left / len(draws_S)) if left > 0 else math.nan
    gap = other - float(draws_S.mean())
    return LogDet(draws_S, sem, gap, math.nan, abs(gap) <= max(3 * sem, _rounding(gap)))


def _rounding(value: float) -> float:
    return 1e-9 * abs(value)


def by_quadrature(
    ritz: RitzData, *, floor: float | None = None, controls: Controls | None = None
) -> LogDet:
    """Sum log over each run's Gauss rule: stochastic Lanczos quadrature.

    Args:
        ritz: runs of one positive definite operator.
        floor: what eigenvalues are known to be above; if not given half the least
            Ritz value takes its place, and the gap is no bound.
        controls: taken off by regression over the runs; few runs are left alone.

    Returns:
        The estimate; its gap is to the Gauss-Radau rule with a node at the floor, which
        is too low, as the Gauss rule is too high.

    Reference:
        Ubaru, Chen and Saad (2017), doi:10.1137/16M1104974.
    """
    theta_SK, weights_SK = nodes(ritz)[0], ritz.weights[0]
    node = float(theta_SK.min()) / 2 if floor is None else floor
    values, weights = radau_rule(ritz, torch.full_like(ritz.steps, node).double())
    # Rounding may take nodes below the prescribed one, where none can be.
    logs = torch.where(weights > 0, values, node).clamp_min(node).log()
    below = ritz.size * float((weights * logs).sum(2).mean())
    draws_S = ritz.size * (weights_SK * theta_SK.log()).sum(1)
    gap = below - float(draws_S.mean())
    if controls is None or len(draws_S) < 8 * len(controls.means):
        return _reported(draws_S, below)
    freed_S = _freed(draws_S[:, None], controls)[:, 0]
    return _reported(freed_S, float(freed_S.mean()) + gap, used=1 + len(controls.means))


def _freed(draws_SK: Tensor, controls: Controls) -> Tensor:
    """Take off what the controls explain, by least squares over the runs."""
    known_SC = controls.draws - controls.means
    centred_SC = controls.draws - controls.draws.mean(0)
    # Scaled, for controls differ in size; one that does not vary explains nothing.
    scale_C = centred_SC.norm(dim=0).clamp_min(1e-300)
    fit = np.linalg.lstsq(
        (centred_SC / scale_C).numpy(), draws_SK.numpy(), rcond=1e-10
    )[0]
    freed_SK: Tensor = draws_SK - (known_SC / scale_C) @ torch.as_tensor(fit)
    return freed_SK


def by_chebyshev(ritz: RitzData, *, degree: int, low: float, high: float) -> LogDet:
    """Interpolate log by a polynomial on [low, high] and sum it over the spectrum.

    Args:
        ritz: runs of one operator, of more than degree / 2 steps.
        degree: of the polynomial.
        low: lower end, above zero.
        high: upper end.

    Returns:
        The estimate; its gap is to the quadrature of the same runs.

    Reference:
        Han, Malioutov and Shin (2015), arXiv:1503.06394.
    """
    coefficients_K = _interpolated(degree, low, high)
    theta_SK, weights_SK = nodes(ritz)[0], ritz.weights[0]
    shape = theta_SK.shape
    values_NK = polynomials("chebyshev", theta_SK.reshape(-1), degree + 1, (low, high))
    series_SK = (values_NK @ coefficients_K).reshape(shape)
    draws_S = ritz.size * (weights_SK * series_SK).sum(1)
    return _reported(draws_S, by_quadrature(ritz).value)


def _interpolated(degree: int, low: float, high: float) -> Tensor:
    """Return the Chebyshev coefficients of log's interpolant, (degree + 1,)."""
    count = degree + 1
    angle_K = (torch.arange(count, dtype=torch.float64) + 0.5) * torch.pi / count
    x_K = (low + high) / 2 + (high - low) / 2 * torch.cos(angle_K)
    waves_KK = torch.cos(torch.arange(count)[:, None] * angle_K)
    coefficients_K = 2 / count * waves_KK @ x_K.log()
    coefficients_K[0] /= 2
    return coefficients_K


def by_entropy(
    ritz: RitzData,
    *,
    num_moments: int,
    support: Support,
    law: str,
    basis: str = "chebyshev",
    controls: Controls | None = None,
) -> LogDet:
    """Integrate log over the density of largest entropy that has the runs' moments.

    Args:
        ritz: runs of one operator, of more than num_moments / 2 steps.
        num_moments: orders 1 .. K.
        support: interval of the density, which holds the spectrum.
        law: prior of the density, see `priors`.
        basis: of the moments.
        controls: taken off every moment by regression over the runs.

    Returns:
        The estimate. Its draws are what each run's moments change it by, to first
        order; its gap is to the quadrature of the same runs with the same controls.

    Reference:
        Granziol (2020), Algorithm 3, which has the flat law, exact moments and the
        interval (0, 1) after division by a bound of the largest eigenvalue.
    """
    draws_SK = _moment_draws(ritz, num_moments, basis, support)
    used = 1
    if controls is not None and len(draws_SK) >= 8 * len(controls.means):
        draws_SK, used = _freed(draws_SK, controls), 1 + len(controls.means)
    left = max(1, len(draws_SK) - used)
    centred_SK = draws_SK - draws_SK.mean(0)
    errors_K = (centred_SK.square().sum(0) / left / len(draws_SK)).sqrt()
    fit = maxent(
        draws_SK.mean(0),
        errors_K,
        prior=prior(law, support, NUM_NODES),
        basis=basis,
        support=support,
    )
    logs_G = fit.prior.nodes.log()
    draws_S = fit.mean(logs_G) + centred_SK @ fit.influence(logs_G)
    other = by_quadrature(ritz, controls=controls).value
    fitted = _reported(ritz.size * draws_S, other, used=used)
    converged = fitted.converged and fit.converged and fit.is_feasible
    return replace(fitted, strain=fit.strain, converged=converged)


def _moment_draws(
    ritz: RitzData, num_moments: int, basis: str, support: Support
) -> Tensor:
    """Return v.p_k(A)v of each run for k = 1 .. num_moments, (S, K)."""
    theta_SK, weights_SK = nodes(ritz)[0], ritz.weights[0]
    values_NK = polynomials(basis, theta_SK.reshape(-1), num_moments + 1, support)
    values_SKO = values_NK.reshape(*theta_SK.shape, num_moments + 1)
    return (weights_SK.unsqueeze(2) * values_SKO).sum(1)[:, 1:]


def moment_controls(ritz: RitzData, first: float, second: float) -> Controls:
    """Return the controls that v.Av and v.A^2 v are, of traces that are known.

    Args:
        ritz: runs of one operator.
        first: tr A / D.
        second: tr A^2 / D.
    """
    theta_SK, weights_SK = nodes(ritz)[0], ritz.weights[0]
    draws = [(weights_SK * theta_SK**power).sum(1) for power in (1, 2)]
    means = torch.tensor([first, second], dtype=torch.float64)
    return Controls(torch.stack(draws, dim=1), means)
