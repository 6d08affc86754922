"""Means and covariances of observables over the draws of chains, with their errors.

Letters: I, J observables; P pairs of them; C chains; K draws of each.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling.diagnostics import ess_mean, mcse_mean, r_hat
from curvflow.tasks.numerics.sampling.verdicts import MAX_R_HAT

# Effective draws at the least: products of deviations are skewed, and with fewer their
# spread, of which the error is made, is too often low where the estimate is.
MIN_ESS = 400

# Numbers that the series of one pass may hold.
PASS_NUMBERS = 1 << 22


@dataclass(frozen=True)
class Averages:
    """Averages over draws, of any one shape.

    Attributes:
        value: the averages.
        sem: standard errors, of autocorrelated draws and of chains that differ.
        r_hat: rank-normalised split R-hat of the averaged numbers; NaN if constant.
        ess: effective number of draws for the average.
    """

    value: Tensor
    sem: Tensor
    r_hat: Tensor
    ess: Tensor

    @property
    def is_converged(self) -> Tensor:
        """True where chains agree, and have enough effective draws."""
        return ~(self.r_hat > MAX_R_HAT) & (self.ess >= MIN_ESS)

    def times(self, factor: float) -> Averages:
        """Return the averages times a factor."""
        return Averages(
            factor * self.value, abs(factor) * self.sem, self.r_hat, self.ess
        )


def means(values_ICK: Tensor) -> Averages:
    """Average observables over all chains.

    Args:
        values_ICK: at the draws, at least 8 of each chain.

    Returns:
        Averages, each (I,).

    Reference:
        Vehtari et al. (2021), doi:10.1214/20-BA1221, for errors and R-hat.
    """
    size = values_ICK[0].numel()
    passes = torch.split(values_ICK, max(1, PASS_NUMBERS // size))
    return _joined([_averages(part_PCK) for part_PCK in passes])


def covariances(first_ICK: Tensor, second_JCK: Tensor | None = None) -> Averages:
    """Estimate covariances of observables under the distribution of the draws.

    A covariance is the mean of the products of deviations from the means over all
    chains, times S / (S - 1) for S draws. To first order the errors of these means do
    not enter it, so that the error of the mean product is that of the covariance; to
    second order autocorrelation lowers it by about 1 / ess.

    Args:
        first_ICK: at the draws, at least 8 of each chain.
        second_JCK: the same of others; None takes the first again.

    Returns:
        Averages, each (I, J), symmetric if there is no second.

    Reference:
        Vehtari et al. (2021), doi:10.1214/20-BA1221, for errors and R-hat of a mean.

    Examples:
        >>> draws = torch.randn(2, 4, 500, generator=torch.Generator().manual_seed(0))
        >>> matrix = covariances(draws.double())
        >>> bool(((matrix.value - torch.eye(2)).abs() < 4 * matrix.sem).all())
        True
    """
    first_ICK = _deviations(first_ICK)
    rows, columns = len(first_ICK), len(first_ICK)
    if second_JCK is None:
        i_P, j_P = torch.triu_indices(rows, columns)
        second_JCK = first_ICK
    else:
        second_JCK, columns = _deviations(second_JCK), len(second_JCK)
        i_P, j_P = torch.cartesian_prod(*map(torch.arange, (rows, columns))).unbind(1)
    draws = first_ICK[0].numel()
    length = max(1, PASS_NUMBERS // draws)
    passes = zip(i_P.split(length), j_P.split(length), strict=True)
    pairs = _joined([_averages(first_ICK[i] * second_JCK[j]) for i, j in passes])
    return _matrices(pairs.times(draws / (draws - 1)), (i_P, j_P), (rows, columns))


def _deviations(values_ICK: Tensor) -> Tensor:
    return values_ICK - values_ICK.mean((1, 2), keepdim=True)


def _averages(series_PCK: Tensor) -> Averages:
    return Averages(
        series_PCK.mean((1, 2)),
        mcse_mean(series_PCK),
        r_hat(series_PCK),
        ess_mean(series_PCK),
    )


def _joined(parts: list[Averages]) -> Averages:
    names = ("value", "sem", "r_hat", "ess")
    return Averages(*(torch.cat([getattr(p, name) for p in parts]) for name in names))


def _matrices(
    pairs: Averages, at: tuple[Tensor, Tensor], shape: tuple[int, int]
) -> Averages:
    """Return averages of pairs as matrices, symmetric if of one triangle alone."""
    i_P, j_P = at

    def matrix(values_P: Tensor) -> Tensor:
        values_IJ = values_P.new_empty(shape)
        if len(values_P) < values_IJ.numel():
            values_IJ[j_P, i_P] = values_P
        values_IJ[i_P, j_P] = values_P
        return values_IJ

    return Averages(
        *map(matrix, (pairs.value, pairs.sem, pairs.r_hat, pairs.ess)),
    )
