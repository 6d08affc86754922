"""Learning coefficients that are known in closed form, with their multiplicities.

Of a loss K(w) >= 0 with K = 0 at the truth, the volume of {K <= eps} goes as
c eps^lambda (ln 1/eps)^(m - 1): lambda is the learning coefficient, m its multiplicity.
The mean of nbeta K under the posterior exp(-nbeta K) is, for large nbeta,
lambda - (m - 1) / ln nbeta.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

from curvflow.errors import InputError


@dataclass(frozen=True)
class Coefficient:
    """A learning coefficient lambda and its multiplicity m."""

    value: Fraction
    multiplicity: int = 1


def regular(num_parameters: int) -> Coefficient:
    """Return that of a loss with a positive definite Hessian at the truth, d / 2."""
    return Coefficient(Fraction(num_parameters, 2))


def normal_crossing(
    powers: Sequence[int], prior_powers: Sequence[int] | None = None
) -> Coefficient:
    """Return that of K = prod w_j^(2 k_j) under the prior prod |w_j|^h_j.

    Args:
        powers: k, shape (D,), each 1 or more.
        prior_powers: h, shape (D,); None for a flat prior.

    Returns:
        The smallest (h_j + 1) / (2 k_j), and how many attain it.

    Reference:
        Watanabe (2009), Algebraic Geometry and Statistical Learning Theory.
    """
    priors = prior_powers or [0] * len(powers)
    poles = [Fraction(h + 1, 2 * k) for k, h in zip(powers, priors, strict=True)]
    return Coefficient(min(poles), poles.count(min(poles)))


def separable(parts: Sequence[Coefficient]) -> Coefficient:
    """Return that of a sum of losses, each of separate parameters.

    Args:
        parts: of the losses.

    Returns:
        The sum of the coefficients; the multiplicities' excesses over 1 add up, since
        the integral of exp(-nbeta K) is the product of those of the parts.
    """
    excess = sum(part.multiplicity - 1 for part in parts)
    return Coefficient(sum((part.value for part in parts), Fraction(0)), 1 + excess)


def weighted_homogeneous(weights: Sequence[Fraction]) -> Coefficient:
    """Return that of K with K(t^a_1 w_1, t^a_2 w_2, ...) = t K(w), zero at 0 alone.

    Args:
        weights: a, shape (D,); 1 / (2 k) for each parameter of ||w||^(2 k).

    Returns:
        The sum of the weights: the volume of {K <= eps} scales as its power of eps.
    """
    return Coefficient(sum(weights, Fraction(0)))


def reduced_rank(inputs: int, hidden: int, outputs: int, rank: int) -> Coefficient:
    """Return that of y = B A x, A (hidden, inputs) and B (outputs, hidden).

    Args:
        inputs: M.
        hidden: H.
        outputs: N.
        rank: r, of the true B A.

    Returns:
        The coefficient at the truth where it is smallest, as where A and B have rank r.

    Raises:
        InputError: no product of these matrices has that rank.

    Reference:
        Aoyagi and Watanabe (2005), doi:10.1016/j.neunet.2005.03.014.
    """
    _check_rank([inputs, hidden, outputs], rank)
    M, H, N, r = inputs, hidden, outputs, rank
    if N + r > M + H:
        return Coefficient(Fraction(H * M - H * r + N * r, 2))
    if M + r > N + H:
        return Coefficient(Fraction(H * N - H * r + M * r, 2))
    if H + r > M + N:
        return Coefficient(Fraction(M * N, 2))
    odd = (M + H + N + r) % 2
    twice = 2 * (H + r) * (M + N) + 2 * M * N - (H + r) ** 2 - M**2 - N**2
    return Coefficient(Fraction(twice + odd, 8), 1 + odd)


def reduced_rank_at(
    inputs: int, hidden: int, outputs: int, rank: int, *, ranks: tuple[int, int]
) -> Coefficient:
    """Return that of y = B A x at a point of the truth, where A and B have these ranks.

    Args:
        inputs: M.
        hidden: H.
        outputs: N.
        rank: r, of the true B A.
        ranks: of A and of B, each r or more.

    Returns:
        The local coefficient: a N + b M - a b directions are regular, and the others
        are a product of smaller matrices about zero.

    Raises:
        InputError: no such point is true.
    """
    a, b = ranks
    _check_rank([inputs, hidden, outputs], rank)
    width = hidden - a - b + rank
    if not (rank <= a <= min(inputs, hidden) and rank <= b <= min(outputs, hidden)):
        raise InputError(
            f"ranks: expected them from the rank {rank} to those that the matrices can "
            f"have, got {a} and {b}. Choose others."
        )
    if width < 0:
        raise InputError(
            f"ranks: expected a sum of at most hidden + rank, {hidden + rank}, got "
            f"{a + b}. No product of these has rank {rank}."
        )
    regular_part = Fraction(a * outputs + b * inputs - a * b, 2)
    if min(inputs - a, width, outputs - b) == 0:
        return Coefficient(regular_part)
    rest = reduced_rank(inputs - a, width, outputs - b, 0)
    return Coefficient(regular_part + rest.value, rest.multiplicity)


def deep_linear(widths: Sequence[int], rank: int) -> Coefficient:
    """Return that of a product of matrices.

    Args:
        widths: from the inputs to the outputs, H_1 .. H_(L + 1).
        rank: r, of the true product.

    Returns:
        The coefficient at the truth where it is smallest, as where all factors have
        rank r.

    Raises:
        InputError: no product of these matrices has that rank.

    Reference:
        Aoyagi (2024), doi:10.1016/j.neunet.2024.106132.
    """
    _check_rank(widths, rank)
    narrow = _narrowest([width - rank for width in widths])
    steps, total = len(narrow) - 1, sum(narrow)
    a = total - (-(-total // steps) - 1) * steps
    pairs = Fraction(total**2 - sum(d * d for d in narrow), 4)
    mean = Fraction(total, steps)
    value = (
        Fraction(rank * (widths[0] + widths[-1]) - rank**2, 2)
        + Fraction(a * (steps - a), 4 * steps)
        - Fraction(steps * (steps - 1), 4) * mean**2
        + pairs
    )
    return Coefficient(value, a * (steps - a) + 1)


def _narrowest(excesses: Sequence[int]) -> list[int]:
    """Return those widths, less the rank, that the coefficient depends on."""
    ordered = sorted(excesses)
    for count in range(2, len(ordered) + 1):
        chosen, others = ordered[:count], ordered[count:]
        steps, total = count - 1, sum(chosen)
        if total >= steps * chosen[-1] and not (
            others and (total >= steps * others[0] or chosen[-1] >= others[0])
        ):
            return chosen
    raise AssertionError(f"no set of layers fits {ordered}")


def tanh_units(hidden: int) -> Coefficient:
    """Return that of sum_h a_h tanh(b_h x) of one input where the truth is zero.

    Args:
        hidden: H, number of units; the law of x has H or more values |x| > 0.

    Returns:
        The coefficient at zero weights, where it is smallest.

    Reference:
        Watanabe (2009), Algebraic Geometry and Statistical Learning Theory; checked
        here by integration for one unit and for two.
    """
    i = isqrt(hidden)
    value = Fraction(hidden + i * i + i, 4 * i + 2)
    return Coefficient(value, 2 if i * i == hidden else 1)


def _check_rank(widths: Sequence[int], rank: int) -> None:
    if not 0 <= rank <= min(widths):
        raise InputError(
            f"rank: expected 0 to {min(widths)}, the least of the widths "
            f"{list(widths)}, got {rank}. Lower it, or widen the matrices."
        )
