"""Distances of spectra, of many versions of both at once.

Versions are spectra that other vectors might have given: distances of them show
the error of a distance.
Further letters: R versions, G points, K + 1 orders 0 .. K, T times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.entropy.maxent import prior
from curvflow.tasks.numerics.estimators.polynomials import Support, polynomials


@dataclass(frozen=True)
class Measure:
    """A spectrum as weights at points.

    Attributes:
        points: ascending, (G,).
        weights: of each version, (R, G), of sum 1.
    """

    points: Tensor
    weights: Tensor

    def versions(self, rows: slice) -> Measure:
        """Return some of the versions."""
        return replace(self, weights=self.weights[rows])

    def heat_traces(self, times_T: Tensor) -> Measure:
        """Return the means of exp(-t x) over the spectrum as weights at the times."""
        traces_RT = self.weights @ torch.exp(-self.points[:, None] * times_T)
        return Measure(times_T, traces_RT)


@dataclass(frozen=True)
class Family:
    """Properties that densities of comparable multipliers share.

    Attributes:
        support: interval of the densities.
        prior: name of q0.
        basis: polynomials f.
        basis_support: interval that these are taken over.
    """

    support: Support
    prior: str
    basis: str
    basis_support: Support

    def polynomials(self, points_G: Tensor, count: int) -> Tensor:
        """Return the polynomials of the orders 0 .. count - 1, (G, count)."""
        return polynomials(self.basis, points_G, count, self.basis_support)


@dataclass(frozen=True)
class EntropicMeasure(Measure):
    """A density q = q0 exp(-sum alpha_k f_k) of largest entropy, with f_0 = 1.

    Attributes:
        multipliers: alpha of the orders 0 .. K of each version, (R, K + 1).
        moments: that q has, of these orders or of more, (R, K + 1).
        family: what q0 and f are.
    """

    multipliers: Tensor
    moments: Tensor
    family: Family

    def versions(self, rows: slice) -> EntropicMeasure:
        """Return some of the versions."""
        return EntropicMeasure(
            self.points,
            self.weights[rows],
            self.multipliers[rows],
            self.moments[rows],
            self.family,
        )

    def without_weights(self) -> EntropicMeasure:
        """Return what relative entropies take, which is small."""
        return replace(self, points=self.points[:0], weights=self.weights[:, :0])


def entropic_measure(
    multipliers_RK: Tensor,
    family: Family,
    num_points: int,
    *,
    num_moments: int | None = None,
) -> EntropicMeasure:
    """Return densities of largest entropy from their multipliers.

    Args:
        multipliers_RK: of the orders 1 .. K; that of order 0 follows, as the integral
            of q is 1.
        family: what q0 and the polynomials are.
        num_points: nodes of the integrals, G.
        num_moments: highest order of the moments wanted, K at least; None for K.

    Returns:
        The densities.
    """
    nodes = prior(family.prior, family.support, num_points)
    orders = multipliers_RK.shape[1]
    F_GK = family.polynomials(nodes.nodes, max(num_moments or 0, orders) + 1)
    log_RG = nodes.masses.log() - multipliers_RK @ F_GK[:, 1 : orders + 1].T
    zero_R1 = torch.logsumexp(log_RG, 1, keepdim=True)
    alpha_RK = torch.cat([zero_R1, multipliers_RK], dim=1)
    weights_RG = torch.exp(log_RG - zero_R1)
    return EntropicMeasure(nodes.nodes, weights_RG, alpha_RK, weights_RG @ F_GK, family)


def kl(p: EntropicMeasure, q: EntropicMeasure) -> Tensor:
    """Return the relative entropies KL(p, q) = -sum (alpha - beta)_k mu_k of p, (R,).

    The moments mu are those that p has, not those it was fitted to, and the order 0
    counts, so that the sum equals the integral.

    Args:
        p: densities, with moments of all orders that q has.
        q: densities of the same family; of any number of orders.

    Returns:
        The relative entropies, at least 0 but for rounding.

    Raises:
        InputError: the families differ.

    Reference:
        Granziol (2020), Eq. (3.11), as printed there without the order 0.
    """
    less_RK = _difference(p, q)
    return -(less_RK * p.moments[:, : less_RK.shape[1]]).sum(1)


def symmetric_kl(p: EntropicMeasure, q: EntropicMeasure) -> Tensor:
    """Return half of KL(p, q) + KL(q, p), in which the order 0 cancels, (R,).

    Args:
        p: densities, with moments of all orders that one has.
        q: densities of the same family, with as many moments.

    Returns:
        The divergences.

    Raises:
        InputError: the families differ.

    Reference:
        Granziol (2020), Eq. (3.12).
    """
    less_RK = _difference(p, q)
    count = less_RK.shape[1]
    return (less_RK * (q.moments - p.moments)[:, :count]).sum(1) / 2


def js(p: EntropicMeasure, q: EntropicMeasure) -> Tensor:
    """Return the divergences of Jensen and Shannon by quadrature, at most ln 2, (R,).

    Args:
        p: densities.
        q: densities of the same family; of any number of orders.

    Returns:
        Half of KL(p, m) + KL(q, m), m = (p + q) / 2.

    Raises:
        InputError: the families differ.
    """
    less_RK = _difference(p, q)
    return (_to_mean(p, less_RK) + _to_mean(q, -less_RK)) / 2


def _to_mean(p: EntropicMeasure, less_RK: Tensor) -> Tensor:
    """Return KL(p, m) from the multipliers of p less those of q."""
    F_GK = p.family.polynomials(p.points, less_RK.shape[1])
    log_ratio_RG = less_RK @ F_GK.T  # log q / p
    terms_RG = math.log(2) - torch.nn.functional.softplus(log_ratio_RG)
    return (p.weights * terms_RG).sum(1)


def _difference(p: EntropicMeasure, q: EntropicMeasure) -> Tensor:
    """Return the multipliers of p less those of q, of all orders that one has."""
    check_one_family(p.family, q.family)
    count = max(p.multipliers.shape[1], q.multipliers.shape[1])
    alpha_RK, beta_RK = (
        torch.nn.functional.pad(m.multipliers, (0, count - m.multipliers.shape[1]))
        for m in (p, q)
    )
    return alpha_RK - beta_RK


def check_one_family(p: Family, q: Family) -> None:
    """Refuse densities whose multipliers do not compare.

    Args:
        p: family of the first.
        q: family of the second.

    Raises:
        InputError: their supports, priors or polynomials differ.
    """
    for name, remedy in (
        ("support", "Give all the support of the operator, such as [0, 2]"),
        ("prior", "Give all the same"),
        ("basis", "Give all the same"),
        ("basis_support", "Give their moments one support"),
    ):
        of_p, other = getattr(p, name), getattr(q, name)
        if of_p != other:
            text = " and ".join(_text(value) for value in (of_p, other))
            raise InputError(
                f"of: expected densities of one {name.replace('_', ' ')}, got {text}. "
                f"{remedy}."
            )


def _text(value: Support | str) -> str:
    return value if isinstance(value, str) else f"[{value[0]:g}, {value[1]:g}]"


def wasserstein1(p: Measure, q: Measure) -> Tensor:
    """Return the integrals of |P - Q|, the least mass times way, (R,).

    Args:
        p: weights at points.
        q: weights at these or other points, of as many versions.

    Returns:
        The distances, in units of the points.

    Examples:
        >>> one = Measure(torch.tensor([0.0]), torch.tensor([[1.0]]))
        >>> two = Measure(torch.tensor([0.0, 1.0]), torch.tensor([[0.5, 0.5]]))
        >>> wasserstein1(one, two).tolist()
        [0.5]
    """
    points, order = torch.cat([p.points, q.points]).sort(stable=True)
    signed_RG = torch.cat([p.weights, -q.weights], dim=1)[:, order]
    return signed_RG.cumsum(1)[:, :-1].abs() @ points.diff()


def heat_distance(p: Measure, q: Measure) -> Tensor:
    """Return the norms of the differences of heat traces, as in NetLSD, (R,).

    Args:
        p: heat traces at some times in place of weights at points.
        q: heat traces at the same times.

    Returns:
        The distances.

    Reference:
        Tsitsulin et al. (2018), doi:10.1145/3219819.3219991, normalised by the number
        of nodes.
    """
    length_R: Tensor = (p.weights - q.weights).norm(dim=1)
    return length_R
