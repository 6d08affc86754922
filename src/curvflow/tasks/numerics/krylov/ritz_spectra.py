"""Extreme eigenvalues and spectral masses from Ritz data, without a product."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.estimators.traces import Estimate, estimate
from curvflow.tasks.numerics.krylov.eigenpairs import (
    Ritz,
    Which,
    preference,
    within_tolerance,
)
from curvflow.tasks.numerics.krylov.lanczos import RitzData, breakdown_tolerance
from curvflow.tasks.numerics.krylov.quadrature import (
    distribution_bounds,
    nodes,
    score_interval,
)

# Ritz values of a basis that was not kept orthogonal count as copies of one within this
# part of the largest. One that has less than this part of an eigenvector's mean weight
# in a random vector is none yet.
COPY, NO_WEIGHT = 1e-10, 1e-8

# By how much the residuals of such a basis are too small, at most.
UNSURE = 2.5


def distinct(ritz: RitzData) -> RitzData:
    """Return Ritz data with the copies of a Ritz value united.

    Without them nodes are fewer than steps, so that such rules look exact: they serve
    to tell eigenvalues, and not for quadrature, to which copies do no harm.

    Args:
        ritz: runs from random vectors.

    Returns:
        Each value once, with the weight of all copies, and the least residual as a
        bound; the same data where no basis lost its orthogonality.

    Reference:
        Paige (1980), doi:10.1016/0024-3795(80)90167-6, for the bound. Cullum and
        Willoughby (1985), Lanczos Algorithms for Large Symmetric Eigenvalue
        Computations, for values without weight.
    """
    if not ritz.has_copies:
        return ritz
    is_node = (ritz.weights >= NO_WEIGHT / ritz.size) & ritz.values.isfinite()
    values, order = ritz.values.masked_fill(~is_node, torch.nan).sort(2)  # NaN is last
    weights = ritz.weights.masked_fill(~is_node, 0.0).gather(2, order)
    residuals = ritz.residuals.masked_fill(~is_node, torch.inf).gather(2, order)
    largest_MS1 = values.abs().nan_to_num(nan=0.0).amax(2, keepdim=True)
    is_next = torch.ones_like(is_node)
    is_next[..., 1:] = ~(values.diff(dim=2) <= COPY * largest_MS1)
    group = is_next.cumsum(2) - 1  # number of the value that each is a copy of
    together = torch.zeros_like(values).scatter_add(2, group, weights)
    is_there = together > 0
    means = torch.zeros_like(values).scatter_add(
        2, group, weights * values.nan_to_num(nan=0.0)
    )
    bounds = torch.full_like(values, torch.inf).scatter_reduce(
        2, group, UNSURE * residuals, "amin"
    )
    return replace(
        ritz,
        values=(means / together).masked_fill(~is_there, torch.nan),
        weights=together,
        residuals=bounds.masked_fill(~is_there, torch.nan),
        steps=is_there.sum(2),
        has_copies=False,
    )


def best_run(ritz: RitzData, *, k: int, which: Which, tol: float) -> Ritz:
    """Take the eigenvalues of the run whose worst residual is the least.

    All come from one run, as a second run finds the same ones again. A run from one
    vector finds a repeated eigenvalue once, and copies of one that a basis not kept
    orthogonal has are united.

    Args:
        ritz: runs from random vectors.
        k: eigenvalues wanted.
        which: which of them.
        tol: residual allowed, relative to the eigenvalue.

    Returns:
        The values with residuals and flags, without vectors; NaN where the runs end
        before the k-th. No product is counted.

    Raises:
        InputError: there are fewer steps than eigenvalues wanted.
    """
    models, _, length = ritz.values.shape
    if k > length:
        raise InputError(f"k: expected at most the {length} steps, got {k}. Lower k.")
    ritz = distinct(ritz)
    order = _present_first(ritz, which)[..., :k]
    values_MSK = ritz.values.gather(2, order)
    residuals_MSK = ritz.residuals.gather(2, order)
    worst_MS = residuals_MSK.nan_to_num(nan=0.0).amax(2)
    short_MS = k - values_MSK.isfinite().sum(2)
    best_M = (
        worst_MS.masked_fill(short_MS > short_MS.amin(1, keepdim=True), torch.inf)
    ).argmin(1)
    rows = torch.arange(models)
    values, residuals = values_MSK[rows, best_M], residuals_MSK[rows, best_M]
    largest_M = ritz.values.abs().nan_to_num(nan=0.0).amax((1, 2))
    none = torch.zeros(models, dtype=torch.int64)
    return Ritz(
        values,
        values.new_zeros(models, 0, k),
        residuals,
        within_tolerance(
            values,
            residuals,
            largest_M,
            tol=tol,
            zero=breakdown_tolerance(torch.float64),
        ),
        none,
        none,
    )


def _present_first(ritz: RitzData, which: Which) -> Tensor:
    """Return the numbers of the nodes, the most wanted first, absent ones last."""
    least = {"LM": 0.0, "LA": -torch.inf, "SA": torch.inf}[which]
    return preference(ritz.values.nan_to_num(nan=least), which)


@dataclass(frozen=True)
class Mass:
    """Fraction of the eigenvalues in an interval.

    Attributes:
        estimate: weight of the Gauss rules' nodes in it, (M,), with its draws.
        lower: the least that is compatible with the moments of each run, (M, S).
        upper: the most, (M, S).
    """

    estimate: Estimate
    lower: Tensor
    upper: Tensor

    def interval(self, confidence: float = 0.95) -> tuple[Tensor, Tensor]:
        """Return an interval that allows for both the random vectors and the rule.

        Args:
            confidence: coverage by Student's t over the runs.

        Returns:
            Its ends, (M,), within 0 and 1; 0 and 1 for a single run.
        """
        from scipy.special import stdtrit

        low, high = estimate(self.lower), estimate(self.upper)
        if low.count == 1:
            return torch.zeros_like(low.mean), torch.ones_like(high.mean)
        t = float(stdtrit(low.count - 1, (1 + confidence) / 2))
        return score_interval(low, t)[0], score_interval(high, t)[1]


def mass(ritz: RitzData, low_M: Tensor, high_M: Tensor) -> Mass:
    """Estimate the fraction of eigenvalues from `low` to `high`.

    Args:
        ritz: runs from random vectors.
        low_M: lower ends, included; may be -inf.
        high_M: upper ends, included; may be inf.

    Returns:
        The fraction, and bounds by the Chebyshev-Markov-Stieltjes inequalities.
    """
    values = nodes(ritz)
    inside = (values >= low_M[:, None, None]) & (values <= high_M[:, None, None])
    below_low, below_high = (distribution_bounds(ritz, x) for x in (low_M, high_M))
    return Mass(
        estimate((ritz.weights * inside).sum(2)),
        (below_high[0] - below_low[1]).clamp(0, 1),
        (below_high[1] - below_low[0]).clamp(0, 1),
    )


@dataclass(frozen=True)
class Degeneracy:
    """The atom at zero as the Ritz values closest to it show it.

    Attributes:
        weight: their weight together, (M,).
        value: their weighted mean, (M,), in units of the eigenvalues.
    """

    weight: Estimate
    value: Estimate


def degeneracy(ritz: RitzData, count: int = 1) -> Degeneracy:
    """Take the Ritz values closest to zero for the zero eigenvalues.

    Args:
        ritz: runs from random vectors.
        count: how many nodes to unite; an indefinite spectrum may split its atom
            into two.

    Returns:
        Weight and mean of these nodes, which should be near zero.

    Reference:
        Granziol (2020), section 5.9.1.
    """
    ritz = distinct(ritz)
    distance = ritz.values.abs().nan_to_num(nan=torch.inf)
    nearest = distance.argsort(dim=2, stable=True)[..., :count]
    weights = ritz.weights.gather(2, nearest)
    weight = weights.sum(2)
    value = (weights * nodes(ritz).gather(2, nearest)).sum(2) / weight
    return Degeneracy(estimate(weight), estimate(value))
