"""Moments of the spectra of a batch of operators, all orders from one recurrence.

Further letters: K + 1 orders 0 .. K.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.estimators.forms import Error, shrunk
from curvflow.tasks.numerics.estimators.intervals import (
    leaning_interval,
    positive_interval,
)
from curvflow.tasks.numerics.estimators.traces import estimate, random_vectors
from curvflow.tasks.numerics.operators.base import (
    AnyOperator,
    BatchedOperator,
    as_batched,
    check_finite,
    product_into,
    recur_into,
)
from curvflow.tasks.numerics.operators.deflation import Atoms

# Part of a squared moment below which its spread is rounding.
ROUNDING = 1e-12
FEW = 6  # vectors, whose triples show no skewness


class SupportError(InputError):
    """Chebyshev polynomials leave the support of some models.

    Attributes:
        models: whether each does, (M,).
    """

    def __init__(self, models: Tensor, largest: float) -> None:
        """Say how far the polynomials go, which are 1 at most within the support."""
        super().__init__(
            "support: expected an interval that holds the spectrum, got one that "
            f"Chebyshev polynomials leave, up to {largest:.3g}. Widen it."
        )
        self.models = models


class MomentDraws(NamedTuple):
    """Draws of moments, and the spreads that estimate their errors.

    Attributes:
        draws: v.p_k(A)v of each unit vector, (M, S, K + 1), float64, on the CPU.
        spreads: means of (p_k - their mean)^2 over the spectrum, (M, K + 1), by pairs
            of vectors: with B = p_k(A) - mean, the mean of (v.Bw)^2 is that over D; NaN
            where they are not known.
        freedom: degrees of freedom of these, at most S.
        cubes: means of (p_k - their mean)^3, (M, K + 1), by vectors three by three; NaN
            where they are not known.
    """

    draws: Tensor
    spreads: Tensor
    freedom: int
    cubes: Tensor


def moment_draws(
    operator: AnyOperator,
    seeds: Sequence[int],
    *,
    num_moments: int,
    num_probes: int,
    distribution: str,
    block: int,
    support_M2: Tensor | None = None,
) -> MomentDraws:
    """Draw v.p_k(A)v for unit vectors v; the mean of the draws is tr p_k(A) / D.

    Two products of a recurrence make two orders each: with t_k = p_k(A) v,
    v.A^(i+j)v = t_i.t_j, and 2 T_i T_j = T_(i+j) + T_|i-j|. So K orders take K / 2
    products per vector, rounded up.

    Args:
        operator: symmetric maps A of M models, or one, (D, D).
        seeds: seed of each model's vectors.
        num_moments: highest order, K.
        num_probes: vectors per model, S.
        distribution: `rademacher` or `gaussian`, of the vectors before they are
            brought to length one.
        block: vectors multiplied at once, bounding memory; pairs are made within it.
        support_M2: the interval that each model's Chebyshev polynomials are taken over,
            (M, 2); None for powers.

    Returns:
        The draws, and the spreads of their pairs and triples; those of pairs are NaN
        of blocks of one vector, those of triples of two, too.

    Raises:
        InputError: a product is not finite.
        SupportError: Chebyshev polynomials grow beyond the bound that holds for a
            spectrum within the support.

    Examples:
        >>> from curvflow.tasks.numerics import Dense, moment_draws
        >>> A = Dense(torch.diag(torch.arange(1.0, 41.0).double()))
        >>> found = moment_draws(
        ...     A, [0], num_moments=2, num_probes=2, distribution="rademacher", block=2
        ... )
        >>> [round(value, 6) for value in found.draws.mean(1)[0].tolist()]
        [1.0, 20.5, 553.5]

    Reference:
        Silver and Roeder (1994), doi:10.1142/S0129183194000842; Weisse et al. (2006),
        doi:10.1103/RevModPhys.78.275, Eqs. (34) and (35), for the doubling.
    """
    operator, draws = as_batched(operator), []
    size, pairs = operator.shape[1], _Pairs()
    for start in range(0, num_probes, block):
        rows = range(start, min(start + block, num_probes))
        v_MDS = _unit_vectors(seeds, size, rows, distribution, operator.device)
        if support_M2 is None:
            orders = _powers(operator, v_MDS, num_moments)
        else:
            orders = _chebyshev(operator, v_MDS, num_moments, support_M2)
        del v_MDS  # before the next are drawn
        forms_MKSS = torch.stack(orders, dim=1).cpu()
        draws.append(forms_MKSS.diagonal(dim1=2, dim2=3).mT)
        pairs.add(forms_MKSS)
    draws_MSK = torch.cat(draws, dim=1)
    freedom = min(num_probes, pairs.count // 2)
    squares_MK, cubes_MK = pairs.powers(draws_MSK.mean(1))
    return MomentDraws(draws_MSK, size * squares_MK, freedom, size**2 * cubes_MK)


class _Pairs:
    """Sums over pairs and triples of vectors, of which a mean is taken off afterwards.

    With P for v.w and G for v.p_k(A)w of vectors that differ, (S, S), these are the
    traces of G G, G P, P P, and of G G G, G G P, G P P, P P P.
    """

    def __init__(self) -> None:
        self.count, self._triples = 0, 0
        self._sums_7MK: Tensor | None = None

    def add(self, forms_MKSS: Tensor) -> None:
        """Take v.p_k(A)w of all pairs in; the order 0 is v.w."""
        apart_MKSS = forms_MKSS - torch.diag_embed(forms_MKSS.diagonal(dim1=2, dim2=3))
        plain_MKSS = apart_MKSS[:, :1].expand_as(apart_MKSS)
        square_MKSS, mixed_MKSS = apart_MKSS @ apart_MKSS, apart_MKSS @ plain_MKSS
        ones_MKSS = (plain_MKSS[:, :1] @ plain_MKSS[:, :1]).expand_as(apart_MKSS)
        products = (
            *((apart_MKSS, apart_MKSS), (apart_MKSS, plain_MKSS)),
            *((plain_MKSS, plain_MKSS), (square_MKSS, apart_MKSS)),
            *((square_MKSS, plain_MKSS), (mixed_MKSS, plain_MKSS)),
            (ones_MKSS, plain_MKSS),
        )
        # The trace of a product of two, the second symmetric.
        sums_7MK = torch.stack([(a * b).sum((2, 3)) for a, b in products])
        held = self._sums_7MK
        self._sums_7MK = sums_7MK if held is None else held + sums_7MK
        vectors = forms_MKSS.shape[2]
        self.count += vectors * (vectors - 1)
        self._triples += vectors * (vectors - 1) * (vectors - 2)

    def powers(self, means_MK: Tensor) -> tuple[Tensor, Tensor]:
        """Return means of (v.Bw)^2 and (v.Bw)(w.Bx)(x.Bv), B = p_k(A) - mean.

        They are NaN without a pair, or a triple.
        """
        assert self._sums_7MK is not None
        gg, gp, pp, ggg, ggp, gpp, ppp = self._sums_7MK
        mu = means_MK
        squares_MK = (gg - 2 * mu * gp + mu.square() * pp).clamp_min(0)
        cubes_MK = ggg - 3 * mu * ggp + 3 * mu.square() * gpp - mu**3 * ppp
        pairs, triples = self.count or torch.nan, self._triples or torch.nan
        return squares_MK / pairs, cubes_MK / triples


def _unit_vectors(
    seeds: Sequence[int],
    size: int,
    rows: range,
    distribution: str,
    device: torch.device,
) -> Tensor:
    """Return vectors of length one, (M, D, S), whose rows lie in one piece."""
    z_MDS = random_vectors(seeds, size, rows, distribution)
    norms_M1S = z_MDS.norm(dim=1, keepdim=True)
    v_MDS = torch.empty(z_MDS.shape, dtype=torch.float64)
    torch.div(z_MDS, norms_M1S, out=v_MDS)
    return v_MDS.to(device)


def _powers(operator: BatchedOperator, v_MDS: Tensor, highest: int) -> list[Tensor]:
    """Return v.A^k w of all pairs of vectors, (M, S, S) of each order.

    The vectors are overwritten.
    """
    orders, last, t_MDS = [v_MDS.mT @ v_MDS], v_MDS, torch.empty_like(v_MDS)
    while len(orders) <= highest:
        product_into(operator, last, t_MDS)
        orders += [last.mT @ t_MDS, t_MDS.mT @ t_MDS]
        check_finite(orders[-1])
        last, t_MDS = t_MDS, last
    return orders[: highest + 1]


def _chebyshev(
    operator: BatchedOperator, v_MDS: Tensor, highest: int, support_M2: Tensor
) -> list[Tensor]:
    """Return v.T_k(A)w of all pairs of vectors, (M, S, S) of each order.

    The vectors are overwritten. Two blocks are held: where D is large, new memory costs
    as much as arithmetic.
    """
    low_M, high_M = support_M2.to(operator.device).double().T
    factor_M, shift_M = 2 / (high_M - low_M), -(low_M + high_M) / (high_M - low_M)
    last, t_MDS = v_MDS, torch.zeros_like(v_MDS)
    if highest:
        recur_into(operator, last, t_MDS, factor_M, shift_M)
    orders = [last.mT @ last, last.mT @ t_MDS]
    while len(orders) <= highest:
        orders.append(2 * (t_MDS.mT @ t_MDS) - orders[0])
        if len(orders) <= highest:
            recur_into(operator, t_MDS, last, 2 * factor_M, 2 * shift_M)
            last, t_MDS = t_MDS, last
            orders.append(2 * (last.mT @ t_MDS) - orders[1])
    check_finite(torch.stack(orders))
    _check_within(orders)
    return orders[: highest + 1]


def _check_within(orders: Sequence[Tensor]) -> None:
    largest_M = torch.stack([order.abs().amax((1, 2)) for order in orders]).amax(0)
    outside_M = ~(largest_M <= 1 + 1e-6).cpu()
    if outside_M.any():
        raise SupportError(outside_M, float(largest_M.max()))


def ritz_moments(
    values_SK: Tensor,
    weights_SK: Tensor,
    *,
    num_moments: int,
    support_2: Tensor | None = None,
) -> MomentDraws:
    """Return v.p_k(A)v of each run's start v, from its Ritz values and weights.

    Exact up to order 2K - 1 of a run of K nodes.

    Args:
        values_SK: Ritz values, (S, K); those of weight 0 may be NaN.
        weights_SK: of sum 1 over a run, (S, K).
        num_moments: highest order.
        support_2: the interval of Chebyshev polynomials; None for powers.

    Returns:
        The draws, (S, orders), and the spreads and cubes by the same rules, (orders,).
    """
    x_SK = values_SK.double().where(weights_SK > 0, 0.0)
    if support_2 is not None:
        low, high = support_2.tolist()
        x_SK = (2 * x_SK - (low + high)) / (high - low)
    p_SK, next_SK = torch.ones_like(x_SK), x_SK
    orders: list[Tensor] = []
    spreads: list[Tensor] = []
    cubes: list[Tensor] = []
    for _ in range(num_moments + 1):
        orders.append((weights_SK * p_SK).sum(1))
        away_SK = p_SK - orders[-1].mean()
        for power, means in ((2, spreads), (3, cubes)):
            mean = (weights_SK * away_SK**power).sum(1).mean()
            # A rule of one node does not know how a polynomial varies.
            means.append(mean if values_SK.shape[1] > 1 else mean * torch.nan)
        following = x_SK * next_SK * (1 if support_2 is None else 2)
        p_SK, next_SK = next_SK, following - (0 if support_2 is None else p_SK)
    draws_SO = torch.stack(orders, dim=1)
    known = torch.stack(spreads), len(draws_SO), torch.stack(cubes)
    return MomentDraws(draws_SO, *known)


def atom_moments(
    atoms: Atoms, *, num_moments: int, support_2: Tensor | None = None
) -> Tensor:
    """Return the sum of each p_k over eigenvalues that are known, (orders,).

    Args:
        atoms: the eigenvalues, and how often each counts.
        num_moments: highest order.
        support_2: the interval of Chebyshev polynomials; None for powers.
    """
    values_A1 = torch.tensor(atoms.values)[:, None]
    each = ritz_moments(
        values_A1,
        torch.ones_like(values_A1),
        num_moments=num_moments,
        support_2=support_2,
    )
    return torch.tensor(atoms.counts).double() @ each.draws


def moment_intervals(
    draws: MomentDraws, *, size: int, basis: str, is_positive: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return standard errors and intervals of 95 % of the means of moment draws.

    The variance of a draw is that of a form in p_k(A), which its square tells: the
    moment of twice the order where there is one, else pairs of vectors. The third
    moment is that of three times the order, else of triples.

    Args:
        draws: draws of one model, (S, orders), of the orders 0, 1, ..., and what else
            is known of them.
        size: D.
        basis: `power` or `chebyshev`.
        is_positive: whether no eigenvalue is negative.

    Returns:
        Standard errors, lower and upper ends, of every order.
    """
    runs, is_chebyshev = estimate(draws.draws.T), basis == "chebyshev"
    half_O, cubes_O = draws.spreads.clone(), draws.cubes.clone()
    number, means_O = torch.arange(len(runs.mean)), runs.mean
    doubled, tripled = means_O[::2], means_O[::3]
    squares = (doubled + 1) / 2 if is_chebyshev else doubled
    half_O[: len(squares)] = squares - means_O[: len(squares)].square()
    few = means_O[: len(tripled)]
    cubes = (tripled + 3 * few) / 4 if is_chebyshev else tripled
    cubes_O[: len(few)] = cubes - few * (3 * squares[: len(few)] - 2 * few.square())
    # What is left of equal numbers is rounding.
    half_O = half_O.masked_fill(half_O <= ROUNDING * means_O.square(), torch.nan)
    half_O[0] = 0.0
    freedom_O = torch.full_like(half_O, draws.freedom)
    freedom_O[: len(squares)] = runs.count
    law = Error((2 * half_O / size / runs.count).sqrt(), freedom_O)
    error = shrunk(Error(runs.sem, runs.freedom), law, size=size)
    # No sum of squares is more skewed than a single one.
    lean_O = (cubes_O / half_O**1.5 / size**0.5).clamp(-1, 1)
    # Triples of few vectors do not show how skewed they are: the most that they may be,
    # of powers to the side that they lie on, of polynomials to either.
    is_few = (number >= len(tripled)) & (runs.count < FEW)
    lean_O = torch.where(is_few, means_O.sign(), lean_O)
    skewness_O = lean_O * (8 / runs.count) ** 0.5
    low, high = leaning_interval(means_O, *error, skewness_O)
    if is_chebyshev:
        other_low, other_high = leaning_interval(means_O, *error, -skewness_O)
        low = torch.where(is_few, torch.minimum(low, other_low), low)
        high = torch.where(is_few, torch.maximum(high, other_high), high)
    if not is_chebyshev:
        is_above = (number > 0) & ((number % 2 == 0) | is_positive)
        low = torch.where(is_above, low.clamp_min(0), low)
        _, far = positive_interval(means_O, *error)
        high = torch.where(is_above, torch.maximum(high, far), high)
    return error.sem, low, high


def mean_covariance(draws_SO: Tensor) -> Tensor:
    """Return the covariance of the means of draws, one row each, (orders, orders).

    Args:
        draws_SO: draws (S, orders), S >= 2.
    """
    return torch.cov(draws_SO.T).div(len(draws_SO))
