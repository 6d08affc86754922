"""Gaps of a density of largest entropy, and how much of it lies below them.

Further letters: G points, K orders.
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
from curvflow.tasks.numerics.graphs.gaps import Gap, atoms_below
from curvflow.tasks.numerics.operators.deflation import NO_ATOMS, Atoms

# Eigenvalues that an interval may hold and count as a gap.
FEW = 0.5


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
    """

    points: Tensor
    masses: Tensor
    size: int
    covariance: Tensor
    basis: str
    basis_support: Support
    atoms: Atoms = NO_ATOMS

    def gap(self, least: float) -> tuple[Gap, float]:
        """Find the deepest minimum below the median.

        Args:
            least: width of a gap, relative to that of what lies below it.

        Returns:
            The gap, with the widest interval about the minimum that holds half an
            eigenvalue at most, and what this holds. `unresolved` by polynomials that
            do not vary within half the width of a gap, and where nothing lies below
            the minimum: zero is an eigenvalue of every graph.

        Reference:
            Granziol (2020), Algorithm 5, where the first minimum is taken.
        """
        of_atoms_G = atoms_below(self.atoms, self.points, right=True)
        upto_G = self.size * self.masses.cumsum(0) + of_atoms_G
        half = int((upto_G <= (self.size + self.atoms.total) / 2).sum().clamp_min(1))
        density_G = self.masses / torch.gradient(self.points)[0]
        deepest = int(density_G[:half].argmin())
        low, high = self._around(upto_G, deepest)
        start, end = float(self.points[low]), float(self.points[high])
        if float(upto_G[deepest]) < FEW:
            return Gap("unresolved"), math.nan
        if end - start >= max(least, start):
            held = float(upto_G[high] - upto_G[low])
            return Gap("gap", start, end, float(self.points[deepest])), held
        finely = finest(least, self.basis_support, len(self.covariance))
        return Gap("no gap" if finely <= least / 2 else "unresolved"), math.nan

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
