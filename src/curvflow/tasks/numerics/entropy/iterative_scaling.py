"""The density of largest entropy by iterative scaling: an old method, to compare with.

Further letters: K orders, G nodes, J = K + 1 features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from curvflow.tasks.numerics.entropy.maxent import FLOOR, MaxEnt, Prior, check_finite
from curvflow.tasks.numerics.estimators.polynomials import Support, polynomials

# Least share that a mean may have of the range of its feature, so that its logarithm is
# finite where noisy moments are those of no density.
LEAST = 1e-12


@dataclass(frozen=True)
class _Features:
    """Polynomials shifted and scaled onto [0, 1], and what they lack of K, over K.

    Attributes:
        values: at the nodes, (G, J); each row has the sum K.
        wanted: their means, (J,).
        spread: by how much each polynomial was divided, (K,).
    """

    values: Tensor
    wanted: Tensor
    spread: Tensor

    @classmethod
    def of(cls, F_GK: Tensor, moments_K: Tensor) -> _Features:
        low_K, high_K = F_GK.amin(0), F_GK.amax(0)
        spread_K = high_K - low_K
        values_GK = (F_GK - low_K) / spread_K
        wanted_K = ((moments_K - low_K) / spread_K).clamp(LEAST, 1 - LEAST)
        count = len(moments_K)
        rest_G1 = count - values_GK.sum(1, keepdim=True)
        rest_1 = (count - wanted_K.sum()).clamp_min(LEAST).reshape(1)
        return cls(
            torch.cat([values_GK, rest_G1], dim=1),
            torch.cat([wanted_K, rest_1]),
            spread_K,
        )


def iterative_scaling(
    moments_K: Tensor,
    errors_K: Tensor,
    *,
    prior: Prior,
    basis: str,
    support: Support,
    floor: float = FLOOR,
    tol: float = 1e-9,
    max_iterations: int = 500,
) -> MaxEnt:
    """Multiply q, round by round, by K-th roots of wanted over present means.

    Every round comes nearer to the density that has the moments, by steps that are the
    shorter the more moments there are: after a number of rounds that is fixed, more
    moments leave q nearer to the prior, and its entropy is higher, where at an optimum
    it could only fall. Errors of the moments have no part in it.

    Args:
        moments_K: of the orders 1 .. K; that of order 0 is 1.
        errors_K: their standard errors, the unit of the strain.
        prior: where q begins, with its nodes.
        basis: polynomials that the moments are of.
        support: interval of the basis.
        floor: least error of a moment.
        tol: largest slack allowed.
        max_iterations: rounds at most.

    Returns:
        The density and the flags; `converged` only if all moments are met within the
        tolerance.

    Raises:
        InputError: a moment or an error is not finite.

    Reference:
        Darroch and Ratcliff (1972), doi:10.1214/aoms/1177692379. Bandyopadhyay,
        Bhattacharya, Biswas and Drabold (2005), doi:10.1103/PhysRevE.71.057701, use
        such a method for power moments on [0, 1]; Granziol (2020), section 2.7,
        compares with it. Their rounds are not printed there.
    """
    check_finite(moments_K, errors_K)
    F_GK = polynomials(basis, prior.nodes, len(moments_K) + 1, support)[:, 1:]
    masses_G, alpha_K, rounds = prior.masses, torch.zeros_like(moments_K), 0
    if len(moments_K):
        rounds_of = _Rounds(F_GK, moments_K, _Features.of(F_GK, moments_K), tol)
        masses_G, alpha_K, rounds = rounds_of.run(prior.masses.log(), max_iterations)
    slack_K, asked_K = F_GK.T @ masses_G - moments_K, errors_K.clamp_min(floor)
    residual = max(slack_K.abs().tolist(), default=0.0)
    fit = MaxEnt(
        prior=prior,
        masses=masses_G,
        design=F_GK,
        errors=asked_K,
        used=asked_K,
        multipliers=alpha_K,
        slack=slack_K,
        dual=0.0,
        residual=residual,
        iterations=rounds,
        converged=residual <= tol,
    )
    misfit = float((slack_K / asked_K).square().sum())
    return replace(fit, dual=-fit.kl - misfit / 2)


@dataclass(frozen=True)
class _Rounds:
    """Quantities that the rounds compare."""

    design: Tensor
    moments: Tensor
    features: _Features
    tol: float

    def run(self, log_G: Tensor, most: int) -> tuple[Tensor, Tensor, int]:
        """Return masses, multipliers alpha and the rounds made."""
        count, values_GJ = len(self.moments), self.features.values
        masses_G, alpha_K = torch.softmax(log_G, 0), torch.zeros_like(self.moments)
        for rounds in range(most + 1):
            slack_K = self.design.T @ masses_G - self.moments
            if rounds == most or float(slack_K.abs().max()) <= self.tol:
                break
            means_J = (values_GJ.T @ masses_G).clamp_min(LEAST)
            step_J = (self.features.wanted / means_J).log() / count
            alpha_K = alpha_K - (step_J[:-1] - step_J[-1]) / self.features.spread
            log_G = log_G + values_GJ @ step_J
            masses_G = torch.softmax(log_G, 0)
        return masses_G, alpha_K, rounds
