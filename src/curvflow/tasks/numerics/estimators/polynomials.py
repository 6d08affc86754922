"""Polynomials that moments are taken of, and moments of one basis from another.

Further letters: K orders, G nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

Support = tuple[float, float]

BASES = ("chebyshev", "legendre", "power")


def polynomials(basis: str, x_G: Tensor, count: int, support: Support) -> Tensor:
    """Evaluate the polynomials of order 0 .. count - 1.

    Args:
        basis: `chebyshev`, T_k(t); `legendre`, sqrt(2k + 1) P_k(t); `power`, x^k; t
            runs from -1 to 1 over the support.
        x_G: where.
        count: K.
        support: ends of the interval.

    Returns:
        Columns (G, K).
    """
    low, high = support
    t_G = x_G if basis == "power" else (2 * x_G - low - high) / (high - low)
    return torch.stack(list(_values(basis, t_G, count)), dim=1)


def finest(width: float, support: Support, orders: int) -> float:
    """Return how finely polynomials vary so far above the lower end of an interval.

    Args:
        width: distance from the lower end.
        support: the interval.
        orders: degree of the polynomials.
    """
    low, high = support
    inner = max(width * (high - low - width), 0.0)
    return math.pi / orders * math.sqrt(inner)


def _values(basis: str, t_G: Tensor, count: int) -> Iterator[Tensor]:
    before, now = torch.zeros_like(t_G), torch.ones_like(t_G)
    for k in range(count):
        yield now * (2 * k + 1) ** 0.5 if basis == "legendre" else now
        before, now = now, _next(basis, k, t_G, before, now)


def _next(basis: str, k: int, t_G: Tensor, before: Tensor, now: Tensor) -> Tensor:
    if basis == "power" or k == 0:
        return t_G * now
    if basis == "chebyshev":
        return 2 * t_G * now - before
    return ((2 * k + 1) * t_G * now - k * before) / (k + 1)


def converted(
    moments_K: Tensor, source: str, target: str, support: Support
) -> tuple[Tensor, Tensor]:
    """Turn moments of one basis into those of another.

    From powers much precision is lost: a factor of about 6 per order.

    Args:
        moments_K: of the orders 0 .. K - 1.
        source: their basis.
        target: the basis wanted.
        support: interval of the bases that have one.

    Returns:
        The moments (K,), and the matrix C (K, K) that maps the one to the other; the
        covariance of the new ones is C cov C^T.
    """
    count = len(moments_K)
    if source == target:
        turn_KK = torch.eye(count, dtype=torch.float64)
    elif source == "power":
        turn_KK = _from_powers(target, count, support)
    else:
        turn_KK = _expanded(target, source, count, support)
    return turn_KK @ moments_K, turn_KK


def _from_powers(target: str, count: int, support: Support) -> Tensor:
    """Return the coefficients of the polynomials in powers of x, (K, K)."""
    low, high = support
    slope, shift = 2 / (high - low), -(low + high) / (high - low)
    rows_KK = torch.zeros(count, count, dtype=torch.float64)
    rows_KK[0, 0] = 1
    for k in range(count - 1):
        times_t_K = shift * rows_KK[k] + slope * rows_KK[k].roll(1)
        times_t_K[0] = shift * rows_KK[k, 0]
        earlier_K = rows_KK[k - 1] if k else torch.zeros_like(times_t_K)
        if target == "chebyshev":
            rows_KK[k + 1] = times_t_K * (2 if k else 1) - earlier_K
        else:
            rows_KK[k + 1] = ((2 * k + 1) * times_t_K - k * earlier_K) / (k + 1)
    if target == "legendre":
        rows_KK *= (2 * torch.arange(count, dtype=torch.float64)[:, None] + 1).sqrt()
    return rows_KK


def _expanded(target: str, source: str, count: int, support: Support) -> Tensor:
    """Return the coefficients of one basis in another, (K, K), by collocation."""
    low, high = support
    angle_K = (torch.arange(count, dtype=torch.float64) + 0.5) * torch.pi / count
    x_K = (low + high) / 2 + (high - low) / 2 * torch.cos(angle_K)
    source_KK = polynomials(source, x_K, count, support)
    target_KK = polynomials(target, x_K, count, support)
    rows_KK: Tensor = torch.linalg.solve(source_KK, target_KK)
    return rows_KK.T
