"""Moments of the spectra of a batch of operators, all orders from one recurrence.

Further letters: K + 1 orders 0 .. K.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.estimators.forms import Error, freedom, smaller_if_sure
from curvflow.tasks.numerics.estimators.intervals import (
    positive_interval,
    student_interval,
)
from curvflow.tasks.numerics.estimators.traces import estimate, random_vectors
from curvflow.tasks.numerics.operators.base import (
    AnyOperator,
    BatchedOperator,
    as_batched,
    product,
)


def moment_draws(
    operator: AnyOperator,
    seeds: Sequence[int],
    *,
    num_moments: int,
    num_probes: int,
    distribution: str,
    block: int,
    support_M2: Tensor | None = None,
) -> Tensor:
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
        block: vectors multiplied at once, bounding memory.
        support_M2: the interval that each model's Chebyshev polynomials are taken over,
            (M, 2); None for powers.

    Returns:
        Draws (M, S, K + 1), float64, on the CPU.

    Raises:
        InputError: a product is not finite, or Chebyshev polynomials grow beyond the
            bound that holds for a spectrum within the support.

    Examples:
        >>> from curvflow.tasks.numerics import Dense, moment_draws
        >>> A = Dense(torch.diag(torch.arange(1.0, 41.0).double()))
        >>> draws = moment_draws(
        ...     A, [0], num_moments=2, num_probes=2, distribution="rademacher", block=2
        ... )
        >>> [round(value, 6) for value in draws.mean(1)[0].tolist()]
        [1.0, 20.5, 553.5]

    Reference:
        Silver and Roeder (1994), doi:10.1142/S0129183194000842; Weisse et al. (2006),
        doi:10.1103/RevModPhys.78.275, Eqs. (34) and (35), for the doubling.
    """
    operator, draws = as_batched(operator), []
    for start in range(0, num_probes, block):
        rows = range(start, min(start + block, num_probes))
        z_MDS = random_vectors(seeds, operator.shape[1], rows, distribution)
        v_MDS = (z_MDS / z_MDS.norm(dim=1, keepdim=True)).to(operator.device)
        if support_M2 is None:
            orders = _powers(operator, v_MDS, num_moments)
        else:
            orders = _chebyshev(operator, v_MDS, num_moments, support_M2)
        draws.append(torch.stack(orders, dim=2).cpu())
    return torch.cat(draws, dim=1)


def _powers(operator: BatchedOperator, v_MDS: Tensor, highest: int) -> list[Tensor]:
    orders, last = [_dot(v_MDS, v_MDS)], v_MDS
    while len(orders) <= highest:
        t_MDS = product(operator, last)
        orders += [_dot(last, t_MDS), _dot(t_MDS, t_MDS)]
        last = t_MDS
    return orders[: highest + 1]


def _chebyshev(
    operator: BatchedOperator, v_MDS: Tensor, highest: int, support_M2: Tensor
) -> list[Tensor]:
    low, high = support_M2.to(operator.device).double().T[:, :, None, None]

    def scaled(columns_MDS: Tensor) -> Tensor:
        images_MDS = product(operator, columns_MDS)
        moved_MDS = 2 * images_MDS - (low + high) * columns_MDS
        within_MDS: Tensor = moved_MDS / (high - low)
        return within_MDS

    first = scaled(v_MDS) if highest else v_MDS
    orders = [_dot(v_MDS, v_MDS), _dot(v_MDS, first)]
    last, t_MDS = v_MDS, first
    while len(orders) <= highest:
        orders.append(2 * _dot(t_MDS, t_MDS) - orders[0])
        if len(orders) <= highest:
            last, t_MDS = t_MDS, 2 * scaled(t_MDS) - last
            orders.append(2 * _dot(last, t_MDS) - orders[1])
    _check_within(orders)
    return orders[: highest + 1]


def _check_within(orders: Sequence[Tensor]) -> None:
    largest = max(float(order.abs().max()) for order in orders)
    if not largest <= 1 + 1e-6:
        raise InputError(
            "support: expected an interval that holds the spectrum, got one that "
            f"Chebyshev polynomials leave, up to {largest:.3g}. Widen it."
        )


def _dot(a_MDS: Tensor, b_MDS: Tensor) -> Tensor:
    total_MS: Tensor = (a_MDS * b_MDS).sum(1)
    return total_MS


def ritz_moments(
    values_SK: Tensor,
    weights_SK: Tensor,
    *,
    num_moments: int,
    support_2: Tensor | None = None,
) -> Tensor:
    """Return v.p_k(A)v of each run's start v, from its Ritz values and weights.

    Exact up to order 2K - 1 of a run of K nodes.

    Args:
        values_SK: Ritz values, (S, K); those of weight 0 may be NaN.
        weights_SK: of sum 1 over a run, (S, K).
        num_moments: highest order.
        support_2: the interval of Chebyshev polynomials; None for powers.

    Returns:
        Draws (S, orders), float64.
    """
    x_SK = values_SK.double().where(weights_SK > 0, 0.0)
    if support_2 is not None:
        low, high = support_2.tolist()
        x_SK = (2 * x_SK - (low + high)) / (high - low)
    p_SK, next_SK = torch.ones_like(x_SK), x_SK
    orders = []
    for _ in range(num_moments + 1):
        orders.append((weights_SK * p_SK).sum(1))
        following = x_SK * next_SK * (1 if support_2 is None else 2)
        p_SK, next_SK = next_SK, following - (0 if support_2 is None else p_SK)
    return torch.stack(orders, dim=1)


def moment_intervals(
    draws_SO: Tensor, *, size: int, basis: str, is_positive: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return standard errors and intervals of 95 % of the means of moment draws.

    The square of p_k is made of p_2k, so that the moment of twice the order tells the
    variance of a draw; beyond the highest order their spread does, and draws of
    positive matrices are skewed.

    Args:
        draws_SO: v.p_k(A)v of unit vectors v, of the orders 0, 1, ..., S >= 2.
        size: D.
        basis: `power` or `chebyshev`.
        is_positive: whether no eigenvalue is negative.

    Returns:
        Standard errors, lower and upper ends, of every order.
    """
    draws = estimate(draws_SO.T)
    number = torch.arange(len(draws.mean))
    known = (len(number) + 1) // 2
    by_draws = Error(draws.sem[:known], draws.freedom[:known])
    law = _error_by_law(draws_SO.T[::2][:known], draws.mean[:known], size, basis)
    error = smaller_if_sure(by_draws, law)
    sem = torch.cat([error.sem, draws.sem[known:]])
    degrees = torch.cat([error.freedom, draws.freedom[known:]])
    is_skewed = (number >= known) & ((number % 2 == 0) | is_positive)
    if basis == "chebyshev":
        is_skewed = torch.zeros_like(is_skewed)
    low, high = student_interval(draws.mean, sem, degrees)
    skewed_low, skewed_high = positive_interval(draws.mean, sem, degrees)
    low = torch.where(is_skewed, skewed_low, low)
    return sem, low, torch.where(is_skewed, skewed_high, high)


def _error_by_law(doubled_KS: Tensor, means_K: Tensor, size: int, basis: str) -> Error:
    """Return errors by draws of twice the order, as `forms.sphere_error` has them."""
    squares_KS = (doubled_KS + 1) / 2 if basis == "chebyshev" else doubled_KS
    half_K = (squares_KS.mean(1) - means_K.square()).clamp_min(0)
    count = squares_KS.shape[1]
    sem_K = (2 * half_K / (size + 2) / count).sqrt()
    return Error(sem_K, freedom(half_K, squares_KS, least=count))


def mean_covariance(draws_SO: Tensor) -> Tensor:
    """Return the covariance of the means of draws, one row each, (orders, orders).

    Args:
        draws_SO: draws (S, orders), S >= 2.
    """
    return torch.cov(draws_SO.T).div(len(draws_SO))
