"""Densities and distribution functions that are linear in Chebyshev moments.

With x = c + h cos(theta), a Chebyshev series in x is a cosine series in theta, and the
eigenvalues up to x are those on an arc of the circle.
Further letters: K + 1 orders 0 .. K, G points.
"""

from __future__ import annotations

import torch
from torch import Tensor

from curvflow.tasks.numerics.estimators.polynomials import Support


def angles(x_G: Tensor, support: Support) -> Tensor:
    """Return theta of points, (G,); beyond the support that of its end."""
    low, high = support
    inside_G = (2 * x_G - low - high) / (high - low)
    return torch.arccos(inside_G.clamp(-1, 1))


def damping(kernel: str, num_moments: int) -> Tensor:
    """Return the factors of the orders 0 .. K in the kernel polynomial method.

    Args:
        kernel: `jackson`, whose sums are never negative; or `none`.
        num_moments: K.

    Returns:
        The factors, (K + 1,); that of order 0 is 1.

    Reference:
        Weisse et al. (2006), doi:10.1103/RevModPhys.78.275, Eq. (71).
    """
    k = torch.arange(num_moments + 1, dtype=torch.float64)
    if kernel == "none":
        return torch.ones_like(k)
    q = torch.pi / k.new_tensor(num_moments + 2)
    last = num_moments + 2
    return ((last - k) * torch.cos(q * k) + torch.sin(q * k) / torch.tan(q)) / last


def series(theta_G: Tensor, factors_K: Tensor) -> Tensor:
    """Return the coefficients of the moments in a density over theta, (G, K + 1).

    Args:
        theta_G: where, from 0 to pi.
        factors_K: of each order.

    Returns:
        Those of g_0 + 2 sum g_k cos(k theta) mu_k; divided by pi, the density.
    """
    k = torch.arange(len(factors_K), dtype=torch.float64)
    twice_K = torch.where(k > 0, 2.0, 1.0)
    return twice_K * factors_K * torch.cos(theta_G[:, None] * k)


def summed_series(theta_G: Tensor, factors_K: Tensor) -> Tensor:
    """Return those of the integral of this density from theta to pi, (G, K + 1)."""
    k = torch.arange(1, len(factors_K), dtype=torch.float64)
    waves_GK = -2 * factors_K[1:] * torch.sin(theta_G[:, None] * k) / k
    first_G1 = factors_K[0] * (torch.pi - theta_G)[:, None]
    return torch.cat([first_G1, waves_GK], dim=1) / torch.pi


def step_bounds(theta_G: Tensor, num_moments: int) -> tuple[Tensor, Tensor]:
    """Return polynomials below and above the step from 1 to 0 at points.

    Whatever the spectrum, the fraction of it below a point is at least the mean of the
    first, and that up to the point at most the mean of the second. They do not depend
    on the moments, in which the means are linear.

    Args:
        theta_G: the points, as angles.
        num_moments: degree, K.

    Returns:
        The coefficients of both in Chebyshev's polynomials, (G, K + 1) each.

    Reference:
        Vaaler (1985), doi:10.1090/S0273-0979-1985-15349-2, Theorems 18 and 19, and
        Selberg's majorants of an arc: the distance of their means is that of Chebyshev,
        Markov and Stieltjes' bounds for the arcsine law, 2 / (K + 1).
    """
    u_K = torch.arange(num_moments + 1, dtype=torch.float64) / (num_moments + 1)
    turn_K = torch.pi * u_K[1:]
    vaaler_K = turn_K * (1 - u_K[1:]) / torch.tan(turn_K) + u_K[1:]
    middle_GK = summed_series(theta_G, torch.cat([torch.ones(1).double(), vaaler_K]))
    reach_GK = series(theta_G, 1 - u_K) / (num_moments + 1)
    return middle_GK - reach_GK, middle_GK + reach_GK


def linear_errors(rows_GK: Tensor, covariance_KK: Tensor) -> Tensor:
    """Return standard errors of linear functions of means, (G,).

    Args:
        rows_GK: coefficients of each function.
        covariance_KK: of the means.
    """
    variance_G = ((rows_GK @ covariance_KK) * rows_GK).sum(1)
    return variance_G.clamp_min(0).sqrt()
