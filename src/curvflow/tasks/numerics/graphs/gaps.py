"""Gaps of a spectrum above its lowest eigenvalues, and how many these are.

A run from a random vector bounds the weight of its measure below any point. Averaged
over the runs and times D, these bounds are of a count of eigenvalues, and show where
there is none, where there must be some, and where the steps do not suffice.
Further letters: S runs, G points, K eigenvalues.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from curvflow.tasks.numerics.estimators.forms import spread_tells
from curvflow.tasks.numerics.estimators.intervals import NORMAL
from curvflow.tasks.numerics.krylov.functionals import Bounded
from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.numerics.krylov.quadrature import (
    distribution_bounds,
    nodes,
    over_forms,
)
from curvflow.tasks.numerics.operators.deflation import NO_ATOMS, Atoms

Array = np.ndarray[Any, np.dtype[Any]]
Verdict = Literal["gap", "no gap", "unresolved"]

# Points of the scan within the least width of a gap, and within each doubling; and the
# first one, for a gap may begin at zero.
POINTS, FIRST = 6, 0.02

# Runs that are scanned: each point takes an eigendecomposition of each of them.
SCANNED = 12

# Chance that an eigenvalue has more weight in the runs than a gap is allowed.
CONFIDENCE = 0.99

# Part of all eigenvalues that is rounding of the bounds.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Gap:
    """Bounds by the runs of a gap between the lowest eigenvalues and the bulk.

    Attributes:
        verdict: `gap`, where an eigenvalue goes unseen in one case of a hundred; `no
            gap`, as every interval so wide holds weight; `unresolved` by so many steps,
            or as the widest interval is just about so wide.
        low: lower end of the interval that holds no eigenvalue; NaN without a gap.
        high: its upper end.
        at: where it is deepest.
    """

    verdict: Verdict
    low: float = float("nan")
    high: float = float("nan")
    at: float = float("nan")


def spectral_gap(ritz: RitzData, *, least: float, atoms: Atoms = NO_ATOMS) -> Gap:
    """Find the widest gap below the median of a spectrum that begins at zero.

    It is at least as wide as all that is below it: of a line or a grid each eigenvalue
    is the end of some gap.

    Args:
        ritz: runs of one operator without negative eigenvalues from random vectors.
        least: width that it must have.
        atoms: further eigenvalues, known exactly, that the runs are not of.

    Returns:
        The gap, with a verdict.

    Examples:
        >>> from curvflow.tasks.numerics import Dense, lanczos
        >>> A = Dense(torch.diag(torch.cat([torch.zeros(3), torch.ones(37)]).double()))
        >>> starts = torch.ones(40, 8).double()
        >>> spectral_gap(lanczos(A, starts, num_steps=2), least=0.1).verdict
        'gap'

    Reference:
        Golub and Meurant (2010), Matrices, Moments and Quadrature, section 2.2, for
        the bounds.
    """
    scanned = _taken(ritz, lambda part: part[:, :SCANNED])
    points_G = scan_points(scanned, least, atoms)
    below_G, upto_G = (
        ritz.size * bound.mean(1) for bound in _bounds_at(scanned, points_G)
    )
    below_G = below_G + atoms_below(atoms, points_G)
    upto_G = upto_G + atoms_below(atoms, points_G, right=True)
    low, high = _widest(points_G, below_G, upto_G, scanned.steps.shape[1], least)
    if high:
        deepest = low + _deepest((upto_G - below_G)[low : high + 1])
        ends = (float(points_G[number]) for number in (low, high, deepest))
        return Gap("gap", *ends)
    rounding = ROUNDING * (ritz.size + atoms.total)
    has_none = is_filled(points_G, below_G, upto_G + rounding, least)
    return Gap("no gap" if has_none else "unresolved")


def count_below(ritz: RitzData, x: float, *, atoms: Atoms = NO_ATOMS) -> Bounded:
    """Count the eigenvalues below a point.

    Args:
        ritz: runs of one operator from random vectors.
        x: the point; best where no eigenvalue is near.
        atoms: further eigenvalues, known exactly, that the runs are not of.

    Returns:
        The count with its draws and bounds, (1,).
    """
    at_1 = torch.tensor([x], dtype=torch.float64)
    lower_1S, upper_1S = (ritz.size * of for of in distribution_bounds(ritz, at_1))
    estimate = over_forms(ritz, (nodes(ritz) < x).double())
    draws_1S = estimate.draws
    count = Bounded(
        estimate,
        torch.minimum(lower_1S, draws_1S),
        torch.maximum(upper_1S, draws_1S),
    )
    return count.plus(float(atoms_below(atoms, at_1)))


def count_interval(
    count: Bounded, size: int, known: float = 0.0, *, is_exact: bool = False
) -> tuple[Tensor, Tensor]:
    """Return an interval of 95 % for a count, by the law of its draws.

    A random unit vector has in k of D dimensions a weight of mean k / D, and D times
    that the variance 2 k (1 - k / D) D / (D + 2), that of Gaussian vectors, which signs
    hardly exceed. So the numbers k are taken that the mean of the draws is within 1.96
    of their own standard errors of, for draws that are low state low errors.

    Args:
        count: draws and bounds, (M,).
        size: D, without eigenvalues taken out.
        known: how many of these the count holds.
        is_exact: the draws are of all eigenvalues, not of random vectors. That they
            are equal does not say so: all miss what no node is of.

    Returns:
        Lower and upper ends, (M,), of the bounds' means.

    Reference:
        Wilson (1927), doi:10.1080/01621459.1927.10502953, of shares.
    """
    spread = 2 * NORMAL**2 * size / (size + 2) / count.estimate.count
    is_known_M = count.upper.mean(-1) - known <= ROUNDING * size
    is_known_M |= count.lower.mean(-1) - known >= (1 - ROUNDING) * size
    # Any eigenvalue has some weight in a random vector, so that without any there is
    # none; but few signs may have none along an eigenvector.
    is_known_M &= spread_tells(size, count.estimate.count)
    is_known_M |= is_exact
    ends = []
    for sign, bounds in ((-1, count.lower), (1, count.upper)):
        mean_M = (bounds.mean(-1) - known).clamp(0, size)
        middle_M, square = mean_M + spread / 2, 1 + spread / size
        root_M = (middle_M.square() - square * mean_M.square()).clamp_min(0).sqrt()
        end_M = known + (middle_M + sign * root_M) / square
        ends.append(torch.where(is_known_M, bounds.mean(-1), end_M))
    return ends[0], ends[1]


def is_clear(count: Bounded) -> bool:
    """Return whether no eigenvalue is at the point of a count, but for one in 100.

    Args:
        count: of one operator.
    """
    width = float((count.upper - count.lower).mean())
    return width <= _unseen(count.estimate.count)


def scan_bytes(steps: int, *, least: float) -> int:
    """Return the bytes that the scan for a gap takes.

    Args:
        steps: of the runs.
        least: width of a gap.
    """
    # The median of a normalized Laplacian is about 1; the bordered matrices of a scan
    # are held twice.
    points = 2 + math.ceil(POINTS * (1 + max(0.0, -math.log2(least))))
    return 2 * 8 * points * SCANNED * (steps + 1) ** 2


def _taken(ritz: RitzData, take: Callable[[Tensor], Tensor]) -> RitzData:
    """Return Ritz data whose arrays are taken from others, without vectors."""
    return replace(
        ritz,
        values=take(ritz.values),
        weights=take(ritz.weights),
        residuals=take(ritz.residuals),
        steps=take(ritz.steps),
        vectors=None,
    )


def _unseen(runs: int) -> float:
    """Return the weight that an eigenvalue exceeds with confidence, in eigenvalues.

    Its weights are, over the runs, a sum of squared normal numbers.
    """
    from scipy.special import chdtri

    return float(chdtri(runs, CONFIDENCE)) / runs


def atoms_below(atoms: Atoms, points_G: Tensor, *, right: bool = False) -> Tensor:
    """Return how many atoms are below points, (G,).

    Args:
        atoms: eigenvalues known exactly.
        points_G: the points.
        right: counts those at the points too.
    """
    values, counts = (torch.as_tensor(part) for part in (atoms.values, atoms.counts))
    upto = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return upto[torch.searchsorted(values, points_G, right=right)].double()


def scan_points(
    ritz: RitzData, least: float, atoms: Atoms, *, points: int = POINTS
) -> Tensor:
    """Return the points from zero to where more than half of the weight is below.

    Args:
        ritz: runs of one operator without negative eigenvalues.
        least: width of a gap.
        atoms: further eigenvalues, known exactly.
        points: evenly up to the least width, and then as many to each doubling.
    """
    weights = ritz.weights.flatten() * (ritz.size / ritz.steps.numel())
    values = torch.cat([nodes(ritz).flatten(), torch.as_tensor(atoms.values)])
    values, order = values.sort()
    below = torch.cat([weights, torch.as_tensor(atoms.counts)])[order].cumsum(0)
    half = (0.5 + 1e-9) * (ritz.size + atoms.total)
    median = float(values[int((below <= half).sum().clamp_max(len(values) - 1))])
    doublings = max(0.0, math.log2(max(median, least) / least))
    even_G = torch.arange(points, dtype=torch.float64) / points
    count = max(2, math.ceil(points * doublings) + 1)
    further_G = 2 ** (torch.arange(count, dtype=torch.float64) / points)
    first_1 = torch.tensor([FIRST], dtype=torch.float64)
    return least * torch.cat([even_G[:1], first_1, even_G[1:], further_G])


def _bounds_at(ritz: RitzData, points_G: Tensor) -> tuple[Tensor, Tensor]:
    """Return the least weight below points, and the most up to them, (G, S) each."""
    count = len(points_G)
    at_points = _taken(ritz, lambda part: part.expand(count, *part.shape[1:]))
    return distribution_bounds(at_points, points_G)


def _widest(
    points_G: Tensor, below_G: Tensor, upto_G: Tensor, runs: int, least: float
) -> tuple[int, int]:
    """Return the first and last point of the widest gap; (0, 0) if there is none."""
    best, width = (0, 0), 0.0
    for low in range(1, len(points_G)):
        empty = (upto_G[low:] - below_G[low] <= _unseen(runs)).nonzero()
        high = low + int(empty.max()) if len(empty) else low
        start = float(points_G[low])
        across = float(points_G[high]) - start
        if across > width and across >= max(least, start) * (1 - 1e-9):
            best, width = (low, high), across
    return best


def is_filled(points_G: Tensor, below_G: Tensor, upto_G: Tensor, least: float) -> bool:
    """Return whether every interval that would be a gap holds weight.

    One that begins between two points holds all from the second up to where one that
    begins at the first would end. Those that end beyond the last point hold the median.

    Args:
        points_G: ascending, from zero to the median at least.
        below_G: least number of eigenvalues below each.
        upto_G: largest up to each.
        least: width of a gap.
    """
    ends_G = (points_G + points_G.clamp_min(least)) * (1 + 1e-9)
    last_G = torch.searchsorted(points_G, ends_G, right=True) - 1
    inside = (ends_G <= points_G[-1] * (1 + 2e-9)).nonzero().flatten()
    return bool((below_G[last_G[inside]] > upto_G[inside + 1]).all())


def _deepest(widths_G: Tensor) -> int:
    """Return where the bounds are closest, of many such points the one amidst."""
    closest = (widths_G <= widths_G.min() + 1e-6).nonzero().flatten()
    return int(closest[len(closest) // 2])


# Rounding of a product with a normalized Laplacian of one node; it grows as the root.
PRODUCT_ROUNDING = 20 * float(np.finfo(np.float64).eps)


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
        reach = np.maximum(residuals[order], PRODUCT_ROUNDING * np.sqrt(size))
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
