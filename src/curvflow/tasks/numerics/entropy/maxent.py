"""The density of largest entropy that has given moments, within their errors.

Further letters: K orders, G nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.entropy.duals import (
    FIRST,
    SHRINK,
    STRAINED,
    Path,
    triangle,
)
from curvflow.tasks.numerics.estimators.cumulatives import linear_errors
from curvflow.tasks.numerics.estimators.polynomials import Support, polynomials

PRIORS = ("flat", "log", "arcsine")


@dataclass(frozen=True)
class Prior:
    """A density q0 and the rule by which integrals over the interval are taken.

    Attributes:
        nodes: ascending, (G,).
        lengths: of the interval that a node stands for, (G,): sum f(x) length is the
            integral of f.
        masses: of q0 at the nodes, of sum 1, (G,).
    """

    nodes: Tensor
    lengths: Tensor
    masses: Tensor


def prior(name: str, support: Support, num_nodes: int) -> Prior:
    """Return a density without a preference, in one of three senses.

    Args:
        name: `flat`; `log`, 1/x, flat in log x, with nodes spaced alike; `arcsine`,
            to which Chebyshev polynomials are orthogonal.
        support: ends of the interval; above zero for `log`.
        num_nodes: G.

    Returns:
        Nodes and masses; the rule is exact for polynomials of x, of log x for `log`.

    Raises:
        InputError: the interval is empty, or not above zero for `log`.
    """
    low, high = support
    if not low < high:
        raise InputError(
            f"support: expected low below high, got {low:g} and {high:g}. Swap them, "
            "or move one."
        )
    if name == "log" and low <= 0:
        raise InputError(
            f"support: expected an interval above zero for the prior log, got {low:g} "
            f"to {high:g}. Take the prior flat, or another support."
        )
    t_G, w_G = _fejer(num_nodes)
    if name == "log":
        ratio = torch.log(torch.tensor(high / low, dtype=torch.float64))
        nodes = low * torch.exp(ratio * (1 + t_G) / 2)
        return Prior(nodes, nodes * ratio * w_G / 2, w_G / 2)
    nodes, lengths = low + (high - low) * (1 + t_G) / 2, (high - low) * w_G / 2
    even = torch.full_like(w_G, 1 / num_nodes)
    return Prior(nodes, lengths, even if name == "arcsine" else w_G / 2)


@lru_cache(maxsize=4)
def _fejer(count: int) -> tuple[Tensor, Tensor]:
    """Return nodes and weights of Fejer's first rule on [-1, 1], ascending."""
    angle_G = (torch.arange(count, dtype=torch.float64) + 0.5) * torch.pi / count
    j = torch.arange(1, count // 2 + 1, dtype=torch.float64)
    sums_G = torch.cos(2 * angle_G[:, None] * j) @ (1 / (4 * j**2 - 1))
    return -torch.cos(angle_G), (2 / count) * (1 - 2 * sums_G)


# Least error that a moment is taken to have: exact ones at the edge of what moments can
# be, those of a few atoms, would ask for infinite multipliers.
FLOOR = 1e-6

# Points whose intervals are computed at once, which bounds memory.
CHUNK = 256


@dataclass(frozen=True)
class MaxEnt:
    """A density by its masses at nodes, and the quality of the fit.

    Attributes:
        prior: q0 with its nodes.
        masses: of q at the nodes, (G,), of sum 1.
        design: the polynomials of the orders 1 .. K at the nodes, (G, K).
        errors: of the moments, as asked and not below the floor, (K,).
        used: errors with which q was found; larger ones if the moments are strained.
        multipliers: alpha, (K,).
        slack: by how much each moment is missed, signed, (K,).
        dual: -KL - |slack / used|^2 / 2, which falls as moments are added.
        residual: largest entry of the dual's gradient.
        iterations: Newton steps.
        converged: whether the residual is within the tolerance at the errors asked.
    """

    prior: Prior
    masses: Tensor
    design: Tensor
    errors: Tensor
    used: Tensor
    multipliers: Tensor
    slack: Tensor
    dual: float
    residual: float
    iterations: int
    converged: bool

    @property
    def density(self) -> Tensor:
        """The density q at the nodes, (G,)."""
        return self.masses / self.prior.lengths

    @property
    def kl(self) -> float:
        """Relative entropy of q with respect to q0, at least 0."""
        return _relative(self.masses, self.prior.masses)

    @property
    def entropy(self) -> float:
        """Differential entropy, -int q log q."""
        return -_relative(self.masses, self.prior.lengths)

    @property
    def strain(self) -> float:
        """Largest slack in standard errors of its moment."""
        return max((self.slack / self.errors).abs().tolist(), default=0.0)

    @property
    def is_feasible(self) -> bool:
        """True if q has the moments within their errors, so that a density does."""
        return self.strain <= STRAINED

    @property
    def cumulative(self) -> Tensor:
        """Mass of q up to the nodes, (G,); half of that of a node lies before it."""
        return self.masses.cumsum(0) - self.masses / 2

    def mean(self, values_G: Tensor) -> float:
        """Return the mean of a function, given at the nodes."""
        return float(self.masses @ values_G)

    def influence(self, values_G: Tensor) -> Tensor:
        """Return the derivatives of a function's mean by the moments 1 .. K, (K,)."""
        centred_GK = self.design - self.masses @ self.design
        root_KK = triangle(self.masses, centred_GK, self.used)
        _, singular_K, turn_KK = torch.linalg.svd(root_KK)
        turned_K = turn_KK @ (centred_GK.T @ (self.masses * values_G))
        derivatives_K: Tensor = turn_KK.T @ (turned_K / singular_K.square())
        return derivatives_K

    def multipliers_covariance(self, covariance_KK: Tensor) -> Tensor:
        """Return the covariance of the multipliers, to first order, (K, K).

        Args:
            covariance_KK: of the moments of the orders 1 .. K.

        Returns:
            That of the multipliers of the same orders.
        """
        centred_GK = self.design - self.masses @ self.design
        root_KK = triangle(self.masses, centred_GK, self.used)
        _, singular_K, turn_KK = torch.linalg.svd(root_KK)
        inverse_KK = (turn_KK.T / singular_K.square()) @ turn_KK
        turned_KK: Tensor = inverse_KK @ covariance_KK @ inverse_KK
        return turned_KK

    def density_interval(
        self, covariance_KK: Tensor, quantile: float
    ) -> tuple[Tensor, Tensor]:
        """Return an interval of the density that exact moments have, (G,) each.

        It is of the logarithm, which is affine in the multipliers. The moments are met:
        within errors they draw the density towards the prior, by about as much as the
        errors spread it. The ends are where the logarithm is led to by moments so many
        errors away, where it changes most; to second order, but no nearer than to
        first: elsewhere on the ellipsoid of these errors it may go on.

        Args:
            covariance_KK: of the moments of the orders 1 .. K, which are met.
            quantile: of the error of the logarithm.
        """
        centred_GK = self.design - self.masses @ self.design
        root_KK = triangle(self.masses, centred_GK, self.used)
        _, singular_K, turn_KK = torch.linalg.svd(root_KK)
        inverse_KK = (turn_KK.T / singular_K.square()) @ turn_KK
        slopes_GK = centred_GK @ inverse_KK
        errors_G = linear_errors(slopes_GK, covariance_KK)
        # Multipliers, less those here, per error of the moments along the slope.
        moved_GK = -(slopes_GK @ covariance_KK) @ inverse_KK
        moved_GK = moved_GK / errors_G.clamp_min(1e-300)[:, None]
        bends_G = quantile**2 / 2 * self._bends(centred_GK, slopes_GK, moved_GK)
        log_G = self.prior.masses.log() - self.design @ self.multipliers
        log_G = log_G - torch.logsumexp(log_G, 0) - self.prior.lengths.log()
        half_G = quantile * errors_G
        return (
            torch.exp(log_G - half_G + bends_G.clamp_max(0)),
            torch.exp(log_G + half_G + bends_G.clamp_min(0)),
        )

    def _bends(self, centred_GK: Tensor, slopes_GK: Tensor, moved_GK: Tensor) -> Tensor:
        """Return second derivatives of the logarithm, each along its own way, (G,)."""
        weighted_GK, bends = self.masses[:, None] * centred_GK, []
        for moved_CK, slopes_CK in zip(
            torch.split(moved_GK, CHUNK), torch.split(slopes_GK, CHUNK), strict=True
        ):
            squares_CG = (moved_CK @ centred_GK.T).square()
            skew_CK = squares_CG @ weighted_GK
            bends.append(-(skew_CK * slopes_CK).sum(1) - squares_CG @ self.masses)
        return torch.cat(bends)

    def errors_of_masses(self, covariance_KK: Tensor) -> MassErrors:
        """Return the standard errors of the masses and their sums, to first order.

        Args:
            covariance_KK: of the moments of the orders 1 .. K.
        """
        alpha_KK = self.multipliers_covariance(covariance_KK)
        centred_GK = self.design - self.masses @ self.design
        slopes_GK = self.masses[:, None] * centred_GK
        sums_GK = slopes_GK.cumsum(0) - slopes_GK / 2
        return MassErrors(
            linear_errors(slopes_GK, alpha_KK), linear_errors(sums_GK, alpha_KK)
        )


class MassErrors(NamedTuple):
    """Standard errors of the masses of a density, and of its distribution function."""

    masses: Tensor
    cumulative: Tensor


def maxent(
    moments_K: Tensor,
    errors_K: Tensor | None = None,
    *,
    prior: Prior,
    basis: str,
    support: Support,
    floor: float = FLOOR,
    tol: float = 1e-9,
    max_iterations: int = 500,
    begin: MaxEnt | None = None,
) -> MaxEnt:
    """Minimise the dual log int q + alpha.mu + |s alpha|^2 / 2, q = q0 exp(-alpha.f).

    Its optimum is the q that maximises -KL(q, q0) - |(mu - E f) / s|^2 / 2: moments are
    met within errors of standard deviation s. Where no density meets them, errors are
    shrunk no further than to where the strain begins, and the flags say so.

    Args:
        moments_K: mu, of the orders 1 .. K; that of order 0 is 1.
        errors_K: their standard errors; if not given they are exact.
        prior: q0 with its nodes.
        basis: polynomials f that the moments are of.
        support: interval of the basis.
        floor: least error of a moment.
        tol: largest entry allowed of the gradient.
        max_iterations: Newton steps at most.
        begin: the density of the same moments within larger errors, to go on from.

    Returns:
        The density and the flags.

    Raises:
        InputError: a moment or an error is not finite.

    Examples:
        >>> from curvflow.tasks.numerics import maxent
        >>> from curvflow.tasks.numerics.entropy.maxent import prior
        >>> flat = prior("flat", (-1.0, 1.0), 200)
        >>> fit = maxent(
        ...     torch.zeros(1).double(), prior=flat, basis="power", support=(-1.0, 1.0)
        ... )
        >>> fit.converged, round(fit.entropy, 6)  # of mean zero the flat density, ln 2
        (True, 0.693147)

    Reference:
        Granziol (2020), Algorithm 1, without errors of moments and with a fixed jitter
        in the Newton matrix only. Here the matrix is that of the moments' covariance
        under q plus s^2, or more of s^2 where a step fails (Levenberg 1944, Marquardt
        1963). It is factored as it is, and from the triangle of [sqrt(q) F; s] where
        that fails; normalisation is kept exactly by the logarithm.
    """
    errors_K = torch.zeros_like(moments_K) if errors_K is None else errors_K
    check_finite(moments_K, errors_K)
    asked_K = errors_K.clamp_min(floor)
    F_GK = polynomials(basis, prior.nodes, len(moments_K) + 1, support)[:, 1:]
    path = Path(prior.masses.log(), F_GK - moments_K, tol, max_iterations)
    if begin is None:
        alpha_K, least = torch.zeros_like(moments_K), FIRST
    else:
        alpha_K, least = begin.multipliers, SHRINK * float(begin.used.max())
    dual, alpha_K, residual, iterations = path.follow(asked_K, alpha_K, least)
    masses_G = dual.masses(alpha_K)
    at_last = bool((dual.errors == asked_K).all())
    return MaxEnt(
        prior,
        masses_G,
        F_GK,
        asked_K,
        dual.errors,
        alpha_K,
        F_GK.T @ masses_G - moments_K,
        dual.value(alpha_K),
        residual,
        iterations,
        at_last and residual <= tol,
    )


def check_finite(moments_K: Tensor, errors_K: Tensor) -> None:
    """Refuse moments that are no numbers.

    Args:
        moments_K: of the orders 1 .. K.
        errors_K: their standard errors.

    Raises:
        InputError: a moment or an error is not finite.
    """
    if not (torch.isfinite(moments_K).all() and torch.isfinite(errors_K).all()):
        raise InputError(
            "moments: expected finite numbers, got NaN or infinity. Take a support "
            "that holds the spectrum, or fewer moments."
        )


def _relative(masses_G: Tensor, to_G: Tensor) -> float:
    """Return sum m log(m / to), where what has no mass counts nothing."""
    return float(torch.special.xlogy(masses_G, masses_G / to_G).sum())
