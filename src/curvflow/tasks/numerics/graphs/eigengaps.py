"""Gaps between the lowest eigenvalues of a graph, computed one by one.

Further letters: K eigenvalues.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from curvflow.tasks.numerics.graphs.gaps import Gap

Array = np.ndarray[Any, np.dtype[Any]]

# Rounding of a product with a normalized Laplacian of one node; it grows as the root.
ROUNDING = 20 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class LowestEigenvalues:
    """Pairs from the lower end of a spectrum that begins at zero.

    Their vectors are orthonormal, so that for each value there is an eigenvalue that is
    not above it, by Courant and Fischer.

    Attributes:
        values: ascending, (K,).
        reach: an eigenvalue is that near to each, rounding counted, (K,).
        size: eigenvalues in all, D.
        columns: how often a repeated one is found for certain.
        zeros: eigenvalues of zero, as many as there are components.
    """

    values: Array
    reach: Array
    size: int
    columns: int
    zeros: int

    @classmethod
    def of(
        cls, values: Array, residuals: Array, *, size: int, columns: int, zeros: int
    ) -> LowestEigenvalues:
        """Return computed eigenvalues in order, without those that are lacking.

        Args:
            values: NaN are lacking, (K,).
            residuals: of their vectors, (K,).
            size: eigenvalues in all, D.
            columns: how often a repeated one is found for certain.
            zeros: eigenvalues of zero, as many as there are components.
        """
        order = np.argsort(values)[: np.isfinite(values).sum()]  # NaN comes last
        reach = np.maximum(residuals[order], ROUNDING * np.sqrt(size))
        return cls(values[order], reach, size, columns, zeros)

    def gap(self, least: float) -> Gap:
        """Find the widest interval between neighbours that no residual reaches into.

        Args:
            least: width of a gap, relative to that of what lies below it.

        Returns:
            The gap, below the median. `no gap` where more than half of the eigenvalues
            are known and no two are so far apart; else `unresolved`, as where copies of
            an eigenvalue below the gap may be missing.
        """
        starts = np.maximum.accumulate(self.values + self.reach)[:-1]
        ends = np.minimum.accumulate((self.values - self.reach)[::-1])[::-1][1:]
        median = (self.size + 1) // 2
        pairs = min(median, len(self.values)) - 1
        starts, ends = starts[:pairs], ends[:pairs]
        needed = np.maximum(least, np.maximum(starts, 0.0))
        widths = np.where(ends - starts >= needed, ends - starts, -np.inf)
        if len(widths) and widths.max() > 0:
            widest = int(widths.argmax())
            low, high = float(starts[widest]), float(ends[widest])
            if self._has_all(widest + 1):
                return Gap("gap", low, high, (low + high) / 2)
            return Gap("unresolved")
        # Neighbours may be this far apart.
        below = np.maximum((self.values - self.reach)[:pairs], 0.0)
        above = (self.values + self.reach)[1 : pairs + 1]
        is_filled = (above - below < np.maximum(least, below)).all()
        has_most = len(self.values) >= median and self._has_all(median)
        return Gap("no gap" if is_filled and has_most else "unresolved")

    def _has_all(self, count: int) -> bool:
        """Return whether no copies of the lowest can be missing."""
        low = (self.values - self.reach)[:count]
        high = np.maximum.accumulate((self.values + self.reach)[:count])
        # Groups of values that cannot be told apart, from one number up to another.
        firsts = [0, *(1 + np.flatnonzero(low[1:] > high[:-1])), count]
        sizes = np.diff(firsts)
        if low[0] <= 0:
            if sizes[0] < self.zeros:
                return False
            sizes = sizes[1:]  # that of zero is known
        return bool((sizes < self.columns).all()) or self.columns >= self.size
