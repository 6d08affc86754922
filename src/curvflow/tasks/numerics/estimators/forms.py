"""Standard errors of quadratic forms in random vectors, from what they were made of.

Of independent entries with mean 0 and variance 1, the variance of z.Az is 2 ||A||^2 if
they are Gaussian, and 2 (||A||^2 - sum of the squared diagonal) if they are signs. Both
are means over the vectors at hand: of ||Az||^2, and of how the entries of z * Az
spread, each by itself. So the error of a few vectors is known far better than by the
spread of their forms, and is large where these happen to be.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

# Degrees of freedom beyond which Student's law is the normal one.
MANY = 1e7

# That signs are all the same, so that their draws agree.
CHANCE = 1e-6
# Vectors in which the signs of two given dimensions are all alike, or all opposite, by
# a chance of 3 %, so that intervals of 95 % may go by how their draws spread.
FEW = 6
# Errors of draws that differ by rounding alone, against those of their law.
EQUAL = 1e-9

# Of divisors and logarithms: smaller numbers are as good as none.
TINY = 1e-300

# Draws whose spread weighs as much as their law.
WORTH = 20


class Error(NamedTuple):
    """Standard errors of means, and their degrees of freedom, of one shape."""

    sem: Tensor
    freedom: Tensor


class FormErrors:
    """Sums for the error of the mean of z.Az over the vectors so far, of M models."""

    def __init__(self, distribution: str) -> None:
        """Begin without a vector.

        Args:
            distribution: `rademacher` or `gaussian`.
        """
        self._signs, self._size = distribution == "rademacher", 0
        self._squares_MS: Tensor | None = None
        self._means_MD = self._apart_M = torch.zeros(())

    def add(self, terms_MDS: Tensor, images_MDS: Tensor) -> None:
        """Take z * Az, entry by entry, and Az of further vectors in."""
        # Without a copy of the images, which may be large.
        squares_MS = torch.linalg.vector_norm(images_MDS, dim=1).square()
        held, self._size = self._squares_MS, images_MDS.shape[1]
        if self._signs:
            self._add_entries(terms_MDS, 0 if held is None else held.shape[1])
        self._squares_MS = (
            squares_MS if held is None else torch.cat([held, squares_MS], dim=1)
        )

    def _add_entries(self, terms_MDS: Tensor, count: int) -> None:
        """Update the mean of each entry, and their squared distances from it."""
        more = terms_MDS.shape[2]
        means_MD = terms_MDS.mean(2)
        away_MD = means_MD - self._means_MD
        weight = count * more / (count + more)
        within_M = more * terms_MDS.var(2, correction=0).sum(1)
        between_M = weight * away_MD.square().sum(1)
        self._apart_M = self._apart_M + within_M + between_M
        self._means_MD = self._means_MD + away_MD * (more / (count + more))

    def select(self, models: Tensor) -> None:
        """Keep some of the models, by their indices (m,)."""
        if self._squares_MS is not None:
            self._squares_MS = self._squares_MS[models]
        if self._apart_M.ndim:
            self._means_MD = self._means_MD[models]
            self._apart_M = self._apart_M[models]

    def error(self) -> Error:
        """Return the standard error of the mean, (M,); NaN of fewer than two vectors.

        Of few signs, as `spread_tells` has it, it is that of Gaussian vectors, which is
        never less: they may all see a coupling with one sign.
        """
        count = 0 if self._squares_MS is None else self._squares_MS.shape[1]
        if self._squares_MS is None or count < 2:
            models = 1 if self._squares_MS is None else len(self._squares_MS)
            unknown_M = torch.full((models,), torch.nan, dtype=torch.float64)
            return Error(unknown_M, torch.zeros_like(unknown_M))
        return form_error(
            self._squares_MS, self._apart_M, self._size, signs=self._signs
        )


def form_error(squares_MS: Tensor, apart_M: Tensor, size: int, *, signs: bool) -> Error:
    """Return the standard error of the mean of z.Az over two vectors or more.

    Args:
        squares_MS: ||Az||^2 of each vector.
        apart_M: of signs, the squared distances of the entries of z * Az from the means
            of these, added up.
        size: D.
        signs: whether entries of z are signs; else they are Gaussian.

    Returns:
        The error, (M,), on the CPU.
    """
    squares_MS, count = squares_MS.cpu(), squares_MS.shape[1]
    by_entries = signs and spread_tells(size, count)
    least = count - 1 if signs else count
    half_M = apart_M.cpu() / least if by_entries else squares_MS.mean(1)
    if by_entries and not pairs_differ(size, count):
        law_M = squares_MS.mean(1)
        half_M = torch.where(half_M <= EQUAL**2 * law_M, law_M, half_M)
    freedom_M = freedom(half_M, squares_MS, least=least)
    return Error((2 * half_M / count).sqrt(), freedom_M)


def spread_tells(size: int, count: int) -> bool:
    """Return whether the spread of the forms of random signs estimates their error.

    Args:
        size: D.
        count: vectors of signs.

    Returns:
        Whether all signs are the same, but for their sign, by chance of CHANCE at most,
        and those of any two dimensions by less than the intervals may miss. In one
        dimension they are the same, and know it without error.
    """
    enough = (size - 1) * (count - 1) >= -math.log2(CHANCE)
    return size == 1 or (count >= FEW and enough)


def pairs_differ(size: int, count: int) -> bool:
    """Return whether random signs surely see any two dimensions with both signs.

    Else the forms of a matrix that couples two of them alone may all be equal, and tell
    its trace with the same error.

    Args:
        size: D.
        count: vectors of signs.

    Returns:
        Whether the signs of two dimensions are alike in all of them, or opposite, by
        chance of CHANCE at most. In one dimension there is no other.
    """
    return size == 1 or count - 1 >= -math.log2(CHANCE)


def freedom(half_M: Tensor, squares_MS: Tensor, *, least: float) -> Tensor:
    """Return the degrees of freedom of a variance that is a mean of squares.

    They are at least those of the vectors. By the spread of the squares they are more,
    as far as that spread is known: the geometric mean of both is taken.

    Args:
        half_M: the mean, half of the variance of a form.
        squares_MS: what it is the mean of, S >= 2.
        least: degrees of freedom of the vectors.

    Returns:
        Degrees of freedom, (M,).

    Reference:
        Satterthwaite (1946), doi:10.2307/3002019.
    """
    spread_M = squares_MS.var(1, correction=1).clamp_min(TINY)
    most_M = 2 * squares_MS.shape[1] * half_M.square() / spread_M
    return (least * most_M.clamp_min(least)).sqrt().clamp_max(MANY)


def sphere_error(
    weights_MN: Tensor, values_MN: Tensor, *, size: int, count: int
) -> Error:
    """Return the error of a mean of D v.Bv over random directions v of D dimensions.

    The variance of D v.Bv is at most twice the sum of (b - mean b)^2 over the
    eigenvalues b of B: D / (D + 2) of that for Gaussian vectors, and for signs all of
    it where the diagonal of B is constant, less elsewhere.

    Args:
        weights_MN: the part of D eigenvalues that is at each of N values, of sum 1.
        values_MN: b there.
        size: D.
        count: directions averaged, S.

    Returns:
        The error, (M,); its degrees of freedom are S times the number of eigenvalues
        that make up the sum.
    """
    weights_MN = weights_MN.double()
    mean_M1 = (weights_MN * values_MN).sum(1, keepdim=True)
    squares_MN = (values_MN - mean_M1).square()
    second_M, fourth_M = (
        (weights_MN * power_MN).sum(1) for power_MN in (squares_MN, squares_MN.square())
    )
    alike_M = size * second_M.square() / fourth_M.clamp_min(TINY)
    freedom_M = torch.where(fourth_M > 0, count * alike_M, math.inf)
    return Error((2 * size * second_M / count).sqrt(), freedom_M.clamp(1.0, MANY))


def shrunk(draws: Error, law: Error, *, size: int) -> Error:
    """Return the error between that of the draws and of their law, on a log scale.

    The law is known of the first draw on, but is an upper bound for signs, which see a
    diagonal without error; the spread of many draws is right for any law. So the draws
    have the weight of their freedom, and the law that of WORTH draws. Equal draws have
    no error if they are many; few signs may be equal by chance, and keep the law. A law
    without error is none where draws differ: the signs at hand saw nothing of it.

    Args:
        draws: by the spread of the draws; NaN of one draw.
        law: by the law; NaN where it is not known.
        size: D.

    Returns:
        The error, element by element; its freedom is that of the mean of logarithms.
    """
    count = int(draws.freedom.max()) + 1
    weight = draws.freedom / (draws.freedom + WORTH)
    if not spread_tells(size, count):
        weight = torch.zeros_like(weight)
    if not pairs_differ(size, count):
        weight = weight.masked_fill(draws.sem <= EQUAL * law.sem, 0)
    weight = weight.masked_fill(draws.sem.isnan(), 0)
    is_silent = law.sem.isnan() | (law.sem < EQUAL * draws.sem)
    weight = weight.masked_fill(is_silent, 1)
    sem = _to(law.sem, 1 - weight) * _to(draws.sem, weight)
    parts = _of(1 - weight, law.freedom) + _of(weight, draws.freedom)
    return Error(sem, (1 / parts).clamp_max(MANY))


def _to(sem: Tensor, weight: Tensor) -> Tensor:
    """Return an error to a power; 1 to the power of 0, whatever it is."""
    return torch.where(weight > 0, sem**weight, 1.0)


def _of(weight: Tensor, degrees: Tensor) -> Tensor:
    """Return the part that one error has of the variance of the mean of both."""
    return torch.where(weight > 0, weight.square() / degrees, 0.0)
