"""Gaps of estimated densities, and how much of these lies below them.

Further letters: S runs, K nodes or orders, G points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.tasks.numerics.estimators.polynomials import (
    Support,
    finest,
    polynomials,
)
from curvflow.tasks.numerics.graphs.gaps import (
    Gap,
    atoms_below,
    is_clear,
    is_filled,
    scan_points,
)
from curvflow.tasks.numerics.graphs.gaps import count_below as counted_below
from curvflow.tasks.numerics.krylov.functionals import Bounded
from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.numerics.krylov.quadrature import nodes, over_forms
from curvflow.tasks.numerics.operators.deflation import NO_ATOMS, Atoms

# Eigenvalues that an interval may hold and count as a gap.
FEW = 0.5

# Widths of a gap up to where one is sought, however many eigenvalues are zero.
BEYOND = 1.1


@dataclass(frozen=True)
class EntropicDensity:
    """A density of largest entropy of a spectrum, by masses at points.

    Attributes:
        points: ascending, (G,).
        masses: of sum 1, (G,).
        size: eigenvalues that it is of.
        covariance: of the multipliers, by the random vectors, (K, K).
        basis: polynomials of the multipliers.
        basis_support: interval that these are taken over.
        atoms: further eigenvalues, known exactly.
        bounds: least number of all eigenvalues below the points, and largest up to
            them, by the moments; None if they are not known.
    """

    points: Tensor
    masses: Tensor
    size: int
    covariance: Tensor
    basis: str
    basis_support: Support
    atoms: Atoms = NO_ATOMS
    bounds: tuple[Tensor, Tensor] | None = None

    def gap(self, least: float) -> tuple[Gap, float]:
        """Find the deepest minimum below the median.

        Args:
            least: width of a gap, relative to that of what lies below it.

        Returns:
            The gap, with the widest interval about the minimum that holds half an
            eigenvalue at most, and what this holds; where that is too narrow, the
            widest of all such intervals. `no gap` where the bounds leave no interval
            without an eigenvalue; else `unresolved`, as where nothing lies below the
            minimum: zero is an eigenvalue of every graph.

        Reference:
            Granziol (2020), Algorithm 5, where the first minimum is taken.
        """
        of_atoms_G = atoms_below(self.atoms, self.points, right=True)
        upto_G = self.size * self.masses.cumsum(0) + of_atoms_G
        half = int((upto_G <= (self.size + self.atoms.total) / 2).sum().clamp_min(1))
        # Where half of the eigenvalues are zero, a gap may begin there all the same.
        half = max(half, int((self.points <= BEYOND * least).sum()))
        density_G = self.masses / torch.gradient(self.points)[0]
        deepest = int(density_G[:half].argmin())
        if float(upto_G[deepest]) < FEW:
            return Gap("unresolved"), math.nan
        low, high = self._around(upto_G, deepest)
        if not self._fits(low, high, least):
            low, high = self._widest(upto_G, half, least)
            deepest = low + int(density_G[low : high + 1].argmin())
        if self._fits(low, high, least):
            ends = (float(self.points[number]) for number in (low, high, deepest))
            return Gap("gap", *ends), float(upto_G[high] - upto_G[low])
        return Gap("no gap" if self._is_filled(least) else "unresolved"), math.nan

    def _fits(self, low: int, high: int, least: float) -> bool:
        """Return whether an interval is as wide as a gap."""
        start, end = float(self.points[low]), float(self.points[high])
        return end - start >= max(least, start)

    def _widest(self, upto_G: Tensor, half: int, least: float) -> tuple[int, int]:
        """Return the widest interval above some eigenvalue that is like a gap."""
        ends_G = torch.searchsorted(upto_G, upto_G + FEW, right=True) - 1
        across_G = self.points[ends_G] - self.points
        fits_G = (across_G >= self.points.clamp_min(least)) & (upto_G >= FEW)
        fits_G[half:] = False
        low = int(across_G.masked_fill(~fits_G, 0.0).argmax())
        return (low, int(ends_G[low])) if fits_G[low] else (low, low)

    def _is_filled(self, least: float) -> bool:
        """Return whether the bounds leave an eigenvalue in each interval like a gap."""
        if self.bounds is None:
            return False
        below_G, upto_G = self.bounds
        beyond = (below_G > (self.size + self.atoms.total) / 2).nonzero()
        if not len(beyond):
            return False
        last = int(beyond[0]) + 1
        # A gap may begin at zero, where no point needs to be.
        points_G, below_G, upto_G = (
            torch.cat([first_1, values_G[:last]])
            for first_1, values_G in (
                (self.points.new_zeros(1), self.points),
                (below_G.new_zeros(1), below_G),
                (upto_G[:1], upto_G),
            )
        )
        return is_filled(points_G, below_G, upto_G, least)

    def _around(self, upto_G: Tensor, middle: int) -> tuple[int, int]:
        """Return the ends of the widest interval about a point with few eigenvalues."""
        best = middle, middle
        lows_G, highs_G = upto_G[: middle + 1], upto_G[middle:] - FEW
        # For each lower end the last upper one; sums of masses ascend.
        ends = middle + torch.searchsorted(highs_G, lows_G, right=True) - 1
        for low, high in enumerate(ends.tolist()):
            width = self.points[max(high, middle)] - self.points[low]
            if high >= middle and width > self.points[best[1]] - self.points[best[0]]:
                best = low, high
        return best

    def count_below(self, x: float) -> tuple[Tensor, Tensor]:
        """Count the eigenvalues below a point.

        Args:
            x: the point.

        Returns:
            The count, and its standard error by the random vectors, to first order.
        """
        below_G = (self.points < x).double()
        share = self.masses @ below_G
        orders = len(self.covariance) + 1
        f_GK = polynomials(self.basis, self.points, orders, self.basis_support)[:, 1:]
        slope_K = -((below_G - share) * self.masses) @ f_GK
        variance = (slope_K @ self.covariance @ slope_K).clamp_min(0)
        at_1 = torch.tensor([x], dtype=torch.float64)
        count = self.size * share + atoms_below(self.atoms, at_1)[0]
        return count, self.size * variance.sqrt()


# Widths of the kernel that a gap is as wide as at least: an eigenvalue amidst such an
# interval leaves nineteen parts of twenty in it.
VISIBLE = 4

# Points within the least width of a gap, and within each doubling.
POINTS = 24

# Points at which a kernel is taken at once.
CHUNK = 32


@dataclass(frozen=True)
class SmoothedSpectrum:
    """Ritz values of one operator, smoothed by a Gaussian kernel.

    Attributes:
        ritz: runs of it from random vectors.
        sigma: width of the kernel.
        atoms: further eigenvalues, known exactly, which are not smoothed.
    """

    ritz: RitzData
    sigma: float
    atoms: Atoms = NO_ATOMS

    def gap(self, least: float) -> Gap:
        """Find the widest interval below the median with half an eigenvalue at most.

        Args:
            least: width of a gap, relative to that of what lies below it.

        Returns:
            The gap, with its deepest point. `unresolved`, where the runs' own bounds
            allow an eigenvalue at that point, or where the kernel or too few steps may
            hide a gap.
        """
        points_G = scan_points(self.ritz, least, self.atoms, points=POINTS)
        upto_G = self._upto(points_G)
        count = len(points_G)
        ends_G = torch.searchsorted(upto_G, upto_G + FEW, right=True) - 1
        across_G = points_G[ends_G] - points_G
        needed_G = points_G.clamp_min(max(least, VISIBLE * self.sigma))
        fits_G = (across_G >= needed_G * (1 - 1e-9)) & (torch.arange(count) > 0)
        if fits_G.any():
            low = int(across_G.masked_fill(~fits_G, 0.0).argmax())
            high = int(ends_G[low])
            deepest = low + _deepest(points_G[low : high + 1], upto_G[low : high + 1])
            at = float(points_G[deepest])
            clear = is_clear(counted_below(self.ritz, at, atoms=self.atoms))
            ends = float(points_G[low]), float(points_G[high])
            return Gap("gap", *ends, at) if clear else Gap("unresolved")
        hidden_G = self._reach + torch.diff(points_G, append=points_G[-1:])
        is_hidden = across_G + 2 * hidden_G >= (points_G - hidden_G).clamp_min(least)
        upper = float(nodes(self.ritz).max())
        orders = 2 * self.ritz.values.shape[2] - 1
        unseen = finest(least, (0.0, upper), orders) > least / 2
        # The last intervals hold the median.
        inside_G = points_G + needed_G <= points_G[-1]
        hides = bool((is_hidden & inside_G).any())
        return Gap("unresolved" if hides or unseen else "no gap")

    def count_below(self, x: float) -> Bounded:
        """Count the smoothed eigenvalues below a point.

        Args:
            x: the point.

        Returns:
            The count with its draws, (1,), and the bounds of that without a kernel.
        """
        plain = counted_below(self.ritz, x)
        at_1 = torch.tensor([x], dtype=torch.float64)
        shares = torch.special.ndtr((x - nodes(self.ritz)) / self.sigma)
        estimate = over_forms(self.ritz, shares)
        smoothed = Bounded(
            estimate,
            torch.minimum(plain.lower, estimate.draws),
            torch.maximum(plain.upper, estimate.draws),
        )
        return smoothed.plus(float(atoms_below(self.atoms, at_1)))

    @property
    def _reach(self) -> float:
        """Reach of the kernel over half of what an interval may hold, of half of D."""
        share = torch.tensor(FEW / self.ritz.size, dtype=torch.float64)
        return -float(torch.special.ndtri(share)) * self.sigma

    def _upto(self, points_G: Tensor) -> Tensor:
        """Return the smoothed eigenvalues up to points, ascending, (G,)."""
        factor = self.ritz.size / self.ritz.steps.numel()
        nodes_N = nodes(self.ritz).flatten()
        weights_N = factor * self.ritz.weights.flatten()
        parts = [
            torch.special.ndtr((part[:, None] - nodes_N) / self.sigma) @ weights_N
            for part in torch.split(points_G, CHUNK)
        ]
        upto_G = torch.cat(parts) + atoms_below(self.atoms, points_G, right=True)
        return upto_G.cummax(0).values


def smoothing_bytes(runs: int, steps: int, *, least: float) -> int:
    """Return the bytes that the search for a gap takes.

    Args:
        runs: S.
        steps: K.
        least: width of a gap.
    """
    points = 2 + math.ceil(POINTS * (1 + max(0.0, -math.log2(least))))
    return 8 * (3 * CHUNK * runs * steps + 16 * points)


def _deepest(points_G: Tensor, upto_G: Tensor) -> int:
    """Return where the density is least, of many such points the one amidst."""
    slopes_G = torch.diff(upto_G) / torch.diff(points_G)
    least = (slopes_G <= slopes_G.min() + 1e-6).nonzero()
    return int(least[len(least) // 2])
