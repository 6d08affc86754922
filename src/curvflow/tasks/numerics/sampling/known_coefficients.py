"""Coefficients nbeta (E L - L(w*)) of posteriors that need no chain of the sampler.

With a localization gamma they are not those of the theory, which lets nbeta / gamma
grow without bound: here they are taken at the nbeta and gamma of some draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling.diagnostics import mcse_mean

# Steps of the grid of log |w|, and how far below the posterior's scale it begins: there
# the density of the logarithm, which goes as exp(x / k), has fallen to 1e-13.
GRID_STEP, TAIL = 0.02, 30.0

# Chains of the Gibbs sampler, their sweeps, and those before the first draw.
CHAINS, SWEEPS, DISCARDED = 200, 1000, 200


def well_coefficient(
    eigenvalues: Sequence[float], nbeta: float, localization: float
) -> float:
    """Return that of L = 1/2 sum h w^2: 1/2 sum nbeta h / (nbeta h + gamma).

    Args:
        eigenvalues: h, not negative.
        nbeta: inverse temperature.
        localization: gamma.

    Examples:
        >>> well_coefficient([1.0, 1.0], 99.0, 1.0)
        0.99
    """
    return sum(nbeta * h / (nbeta * h + localization) for h in eigenvalues) / 2


def crossing_coefficient(
    powers: Sequence[int], nbeta: float, localization: float
) -> float:
    """Return that of L = prod w_j^(2 k_j), localised about 0, by quadrature.

    Of w_j ~ N(0, 1 / gamma) the logarithm of prod |w_j|^k_j has a density that is a
    convolution, and L is a function of it alone. The trapezoidal rule of analytic
    functions that vanish at both ends converges faster than any power of its step.

    Args:
        powers: k, of each weight.
        nbeta: inverse temperature.
        localization: gamma, above 0.

    Examples:
        >>> crossing_coefficient([1], 99.0, 1.0)  # quadratic, of curvature 198
        0.497487...
    """
    most = max(powers)
    least = min(0.0, -0.5 * math.log(nbeta)) - most * TAIL
    logs = [_log_density(power, localization, least) for power in powers]
    start = sum(first for first, _ in logs)
    length = sum(len(each) for _, each in logs)
    whole = torch.ones(length // 2 + 1, dtype=torch.complex128)
    for _, density in logs:
        whole = whole * torch.fft.rfft(density, length)
    density = torch.fft.irfft(whole, length).clamp(min=0.0)
    log_product = start + GRID_STEP * torch.arange(length, dtype=torch.float64)
    energy = nbeta * torch.exp(2 * log_product)
    weight = density * torch.exp(-energy)
    return float((weight * energy).sum() / weight.sum())


def _log_density(power: int, localization: float, least: float) -> tuple[float, Tensor]:
    """Return the density of k log |w|, w ~ N(0, 1 / gamma), and its first point."""
    most = power * (math.log(9.0) - 0.5 * math.log(localization))
    first = GRID_STEP * math.floor(least / GRID_STEP)
    points = torch.arange(first, most, GRID_STEP, dtype=torch.float64)
    x = points / power
    density = torch.exp(x - localization / 2 * torch.exp(2 * x))
    return first, density / density.sum()


def product_coefficient(
    factors: Sequence[Tensor],
    second_moments_II: Tensor,
    cross_moments_OI: Tensor,
    nbeta: float,
    localization: float,
    *,
    seed: int = 0,
) -> tuple[float, float]:
    """Return that of L = mean |y - W_L ... W_1 x|^2 by a Gibbs sampler.

    Given all others, each factor is normal, with a precision 2 nbeta a b + gamma along
    the eigenvectors of the matrices on either side of it: the draws are exact, and no
    step is chosen.

    Args:
        factors: W_1 to W_L at the centre, each (out, in).
        second_moments_II: mean of x x^T.
        cross_moments_OI: mean of y x^T.
        nbeta: inverse temperature.
        localization: gamma, above 0.
        seed: of the draws.

    Returns:
        The coefficient and its standard error.

    Reference:
        Geman and Geman (1984), doi:10.1109/TPAMI.1984.4767596.
    """
    generator = torch.Generator().manual_seed(seed)
    moments = second_moments_II, cross_moments_OI
    centre = [factor.double() for factor in factors]
    chains = [factor.expand(CHAINS, -1, -1).clone() for factor in centre]
    first = float(_loss(centre, *moments))
    losses = []
    for sweep in range(DISCARDED + SWEEPS):
        for number, middle in enumerate(centre):
            chains[number] = _conditional(
                chains, number, middle, moments, (nbeta, localization), generator
            )
        if sweep >= DISCARDED:
            losses.append(_loss(chains, *moments) - first)
    rise_1CK = nbeta * torch.stack(losses, 1)[None]
    return float(rise_1CK.mean()), float(mcse_mean(rise_1CK))


def _loss(factors: Sequence[Tensor], second_II: Tensor, cross_OI: Tensor) -> Tensor:
    """Return the loss up to the mean of |y|^2."""
    whole_OI = _product(factors)
    fitted = (whole_OI @ second_II - 2 * cross_OI) * whole_OI
    return fitted.sum((-2, -1))


def _product(factors: Sequence[Tensor]) -> Tensor:
    whole = factors[0]
    for factor in factors[1:]:
        whole = factor @ whole
    return whole


def _conditional(
    chains: Sequence[Tensor],
    number: int,
    centre: Tensor,
    moments: tuple[Tensor, Tensor],
    strengths: tuple[float, float],
    generator: torch.Generator,
) -> Tensor:
    """Draw one factor of all chains, given the others."""
    (second_II, cross_OI), (nbeta, localization) = moments, strengths
    count = len(chains[0])
    inputs, outputs = (
        torch.eye(size, dtype=torch.float64).expand(count, -1, -1)
        for size in (len(second_II), len(centre))
    )
    before = _product([inputs, *chains[:number]])
    after = _product([outputs, *chains[number + 1 :]])
    a, left = torch.linalg.eigh(after.mT @ after)
    b, right = torch.linalg.eigh(before @ second_II @ before.mT)
    precision = 2 * nbeta * a.clamp(min=0)[:, :, None] * b.clamp(min=0)[:, None, :]
    precision = precision + localization
    pull = 2 * nbeta * (after.mT @ cross_OI @ before.mT) + localization * centre
    mean = (left.mT @ pull @ right) / precision
    noise = torch.randn(mean.shape, generator=generator, dtype=torch.float64)
    drawn: Tensor = left @ (mean + noise / precision.sqrt()) @ right.mT
    return drawn
