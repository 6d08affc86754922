"""Smooth spectral densities from Ritz data, with the errors of vectors and rule.

Further letters: S runs, K nodes, G points of a grid.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.estimators.traces import Estimate
from curvflow.tasks.numerics.krylov.functionals import Bounded, Peak, bounded
from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.numerics.krylov.quadrature import extremes

# Points computed at once, which bounds memory.
CHUNK = 256


@dataclass(frozen=True)
class Density:
    """A smooth spectral density, of integral 1 over the whole axis.

    Attributes:
        found: the density at each point with its draws and bounds, (M, G).
        sigma: width of the kernel, (M,).
    """

    found: Bounded
    sigma: Tensor

    @property
    def values(self) -> Tensor:
        """Mean over the runs, (M, G)."""
        return self.found.estimate.mean

    @property
    def sem(self) -> Tensor:
        """Standard error of vectors and rule together, (M, G)."""
        return self.found.total


def density(
    ritz: RitzData,
    grid_G: Tensor,
    *,
    sigma: float | None = None,
    kappa: float | None = None,
) -> Density:
    """Smooth the rules by a Gaussian kernel.

    Args:
        ritz: runs from random vectors.
        grid_G: where to take the density.
        sigma: width of the kernel in units of the eigenvalues; or
        kappa: in units of the spectral range, or of the largest magnitude where all
            eigenvalues are equal.

    Returns:
        The density with its standard error, which is large where the kernel is
        narrower than what the steps resolve.

    Raises:
        InputError: not exactly one of the widths is given.

    Examples:
        >>> from curvflow.tasks.numerics import Dense, density, lanczos
        >>> A = Dense(torch.diag(torch.arange(1.0, 41.0).double()))
        >>> ritz = lanczos(A, torch.ones(40), num_steps=40)
        >>> found = density(ritz, torch.tensor([20.5]), sigma=3.0)
        >>> round(found.values.item(), 4)  # 1 / 40
        0.025

    Reference:
        Lin, Saad and Yang (2016), doi:10.1137/130934283, section 3.2.3, for the kernel.
    """
    width_M = kernel_width(ritz, sigma, kappa)
    chunks = torch.split(grid_G.double(), CHUNK)
    parts = [_at(ritz, part_G, width_M) for part_G in chunks]
    return Density(_joined(parts, len(width_M), ritz.size), width_M)


def kernel_width(ritz: RitzData, sigma: float | None, kappa: float | None) -> Tensor:
    """Return the width of the kernel for each model, (M,).

    Args:
        ritz: runs from random vectors.
        sigma: the width itself; or
        kappa: in units of the spectral range, as `density` takes it.

    Raises:
        InputError: not exactly one of the widths is given.
    """
    if (sigma is None) == (kappa is None):
        raise InputError(
            "sigma: expected one width, sigma or kappa, got "
            f"{'neither' if sigma is None else 'both'}. Pass one."
        )
    low_M, high_M = extremes(ritz)
    if sigma is not None:
        return torch.full_like(low_M, sigma)
    largest_M = torch.maximum(low_M.abs(), high_M.abs())
    # Of one eigenvalue the range is rounding alone.
    is_wide = high_M - low_M > 1e-10 * largest_M
    range_M = torch.where(is_wide, high_M - low_M, largest_M)
    return (kappa or 0.0) * torch.where(range_M > 0, range_M, 1.0)


def _at(ritz: RitzData, grid_G: Tensor, width_M: Tensor) -> Bounded:
    """Return D times the density at some points, as of so many models, (M * G,)."""
    count = len(grid_G)
    values, weights, residuals, steps = (
        part.repeat_interleave(count, dim=0)
        for part in (ritz.values, ritz.weights, ritz.residuals, ritz.steps)
    )
    widths_R = width_M.repeat_interleave(count)
    points_R = grid_G.repeat(len(width_M))

    def kernel(values: Tensor) -> Tensor:
        shape = (-1, *[1] * (values.ndim - 1))
        scaled = (values - points_R.view(shape)) / widths_R.view(shape)
        heights_R = 1 / (widths_R * math.sqrt(2 * math.pi))
        return heights_R.view(shape) * torch.exp(-scaled.square() / 2)

    at_points = RitzData(values, weights, residuals, steps, ritz.size)
    return bounded(at_points, Peak(kernel, points_R))


def _joined(parts: Sequence[Bounded], models: int, size: int) -> Bounded:
    """Return the parts along the grid, (M, G), as of a spectrum of integral 1."""

    def along(tensors: Iterable[Tensor]) -> Tensor:
        return torch.cat([t.view(models, -1, *t.shape[1:]) for t in tensors], dim=1)

    of = [part.estimate for part in parts]
    estimate = Estimate(
        along(each.draws for each in of) / size,
        along(each.mean for each in of) / size,
        along(each.sem for each in of) / size,
        of[0].count,
        along(each.freedom for each in of),
    )
    lower = along(part.lower for part in parts) / size
    upper = along(part.upper for part in parts) / size
    return Bounded(estimate, lower.clamp_min(0), upper)
