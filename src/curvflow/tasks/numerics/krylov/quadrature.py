"""Gauss and Gauss-Radau quadrature from Ritz data, without another product.

A run from a random unit vector v gives the Gauss rule of v.f(A)v, exact for polynomials
of degree 2K - 1; its mean over v is tr f(A) / D. Two errors remain apart: that of the
random vectors, estimated by f at the nodes, and that of the rule, which
`functionals.bounded` bounds.
Further letters: S runs, K nodes, P powers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.estimators.forms import (
    MANY,
    Error,
    shrunk,
    sphere_error,
    spread_tells,
)
from curvflow.tasks.numerics.estimators.traces import Estimate, estimate
from curvflow.tasks.numerics.krylov.lanczos import RitzData

# How close, relative to the spectrum, a node inside it may come to a Ritz value: any
# closer, the matrix of the rule would be too large to be diagonalised accurately.
CLOSE = 1e-8

# Weights that are no rounding.
SEEN = 1e-12


def radau_rule(ritz: RitzData, node_MS: Tensor) -> tuple[Tensor, Tensor]:
    """Add a prescribed node to each rule, exact for polynomials of degree 2K.

    In the basis of Ritz vectors the tridiagonal matrix bordered by one more step is an
    arrow: Ritz values on the diagonal, residuals along the border. The product of the
    first and the last entry of an eigenvector of a Jacobi matrix alternates in sign.

    Args:
        ritz: Gauss rules.
        node_MS: the node to prescribe, of each run; no Ritz value that still moves.

    Returns:
        Nodes, ascending, and weights, (M, S, K + 1); behind a breakdown nodes of no
        weight.

    Reference:
        Golub (1973), doi:10.1137/1015032, for the corner of the bordered matrix.
    """
    absent = ritz.values.isnan()
    border_MSK = ritz.residuals.nan_to_num(nan=0.0)
    least_MS1 = (1e-12 * _scale(ritz, node_MS)).unsqueeze(2)
    gaps_MSK = (ritz.values - node_MS.unsqueeze(2)).masked_fill(absent, torch.inf)
    gaps_MSK = torch.where(gaps_MSK.abs() < least_MS1, least_MS1, gaps_MSK)
    corner_MS = node_MS + (border_MSK.square() / gaps_MSK).sum(2)
    # What is absent comes last, so that the prescribed node keeps its number.
    last_MS1 = 4 * torch.maximum(_scale(ritz, node_MS), corner_MS.abs()).unsqueeze(2)
    diagonal_MSK = torch.where(absent, last_MS1, ritz.values)
    arrow = torch.diag_embed(torch.cat([diagonal_MSK, corner_MS.unsqueeze(2)], dim=2))
    arrow[..., :-1, -1] = border_MSK
    arrow[..., -1, :-1] = border_MSK
    values, turn = torch.linalg.eigh(arrow)
    number_K = torch.arange(ritz.values.shape[2])
    is_even = (ritz.steps.unsqueeze(2) - 1 - number_K) % 2 == 0
    first_MSK = torch.where(is_even, 1.0, -1.0) * ritz.weights.sqrt()
    return values, (first_MSK.unsqueeze(2) @ turn[..., :-1, :]).squeeze(2).square()


def distribution_bounds(ritz: RitzData, x_M: Tensor) -> tuple[Tensor, Tensor]:
    """Bound the weight of each run's measure below x, by its moments alone.

    Args:
        ritz: Gauss rules.
        x_M: where, of each model; may be infinite.

    Returns:
        The least weight below x and the most weight up to x, each (M, S).

    Reference:
        Golub and Meurant (2010), Matrices, Moments and Quadrature, section 2.2: the
        Chebyshev-Markov-Stieltjes inequalities, with x a node of the rule.
    """
    x_MS = x_M.unsqueeze(1).expand(ritz.steps.shape)
    finite_MS = x_MS.nan_to_num(posinf=0.0, neginf=0.0)
    lower_MS, _ = _around(ritz, _moved_off(ritz, finite_MS, side=-1))
    _, upper_MS = _around(ritz, _moved_off(ritz, finite_MS, side=1))
    everything, nothing = x_MS == torch.inf, x_MS == -torch.inf
    lower_MS, upper_MS = (
        bound.masked_fill(everything, 1.0).masked_fill(nothing, 0.0)
        for bound in (lower_MS, upper_MS)
    )
    return lower_MS, upper_MS


def _moved_off(ritz: RitzData, x_MS: Tensor, *, side: int) -> Tensor:
    """Move a node that is too close to Ritz values to one side, for a weaker bound."""
    step_MS = CLOSE * _scale(ritz, x_MS)
    values = ritz.values if side > 0 else ritz.values.flip(2)
    for value_MS in values.unbind(2):
        is_near = (value_MS - x_MS).abs() < step_MS
        x_MS = torch.where(is_near, value_MS + 2 * side * step_MS, x_MS)
    return x_MS


def _around(ritz: RitzData, x_MS: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weight below x and up to x of the rules that hold x as a node."""
    _, weights = radau_rule(ritz, x_MS)
    upto = weights.cumsum(2)
    # Nodes interlace with Ritz values, so that as many of either lie below x.
    number = (ritz.values < x_MS.unsqueeze(2)).sum(2, keepdim=True)
    upper = upto.gather(2, number).squeeze(2)
    return upper - weights.gather(2, number).squeeze(2), upper


def _scale(ritz: RitzData, x_MS: Tensor) -> Tensor:
    """Return the size of a run's spectrum and of x, (M, S); positive."""
    largest_MS = ritz.values.abs().nan_to_num(nan=0.0).amax(2)
    scale_MS = torch.maximum(largest_MS, x_MS.abs())
    return torch.where(scale_MS > 0, scale_MS, 1.0)


Function = Callable[[Tensor], Tensor]


def over_forms(ritz: RitzData, values_MSK: Tensor) -> Estimate:
    """Return the mean of D v.f(A)v over the runs, with the error by f(A).

    Args:
        ritz: runs from random vectors.
        values_MSK: f at the nodes of each run.

    Returns:
        The estimate, (M,). Its standard error is that of random directions, which the
        weights and values of all runs together tell, and is known of a single run too;
        of all eigenvalues there is none. NaN of a single run with one node, and where
        few runs see one eigenvalue alone.
    """
    runs = estimate(ritz.size * (ritz.weights * values_MSK).sum(2))
    if is_all_eigenvalues(ritz):
        exact = torch.zeros_like(runs.mean)
        return replace(runs, sem=exact, freedom=exact + MANY)
    law = sphere_error(
        ritz.weights.flatten(1) / runs.count,
        values_MSK.flatten(1),
        size=ritz.size,
        count=runs.count,
    )
    # A rule of one node does not know how f varies.
    is_one_M = ((ritz.steps == 1) & (ritz.steps == ritz.values.shape[2])).any(1)
    is_one_M &= ritz.size > 1
    known = law._replace(sem=law.sem.masked_fill(is_one_M, torch.nan))
    sem_M, freedom_M = shrunk(Error(runs.sem, runs.freedom), known, size=ritz.size)
    if not spread_tells(ritz.size, runs.count):
        sem_M = sem_M.masked_fill(_sees_one(ritz), torch.nan)
    return replace(runs, sem=sem_M, freedom=freedom_M)


def _sees_one(ritz: RitzData) -> Tensor:
    """Return whether all runs together see one eigenvalue alone, (M,).

    Few random signs may all lie along one eigenvector; of the others they know nothing.
    """
    is_seen_MN = (ritz.weights > SEEN).flatten(1)
    nodes_MN = nodes(ritz).flatten(1)
    low_M, high_M = (
        nodes_MN.masked_fill(~is_seen_MN, fill).aminmax(dim=1)[end]
        for end, fill in enumerate((torch.inf, -torch.inf))
    )
    return high_M - low_M <= CLOSE * torch.maximum(high_M.abs(), low_M.abs())


def is_all_eigenvalues(ritz: RitzData) -> bool:
    """Return whether Ritz data are the eigenvalues themselves, as a dense probe's."""
    weights = ritz.weights
    even = torch.full_like(weights, 1 / ritz.size)
    return weights.shape[1:] == (1, ritz.size) and torch.allclose(weights, even)


def score_interval(of: Estimate, t: float) -> tuple[Tensor, Tensor]:
    """Return the p with |mean - p| <= t sem, the sem at p being as sqrt(p(1 - p)).

    The weight of a random vector in an eigenspace, of a fraction p of the dimensions D,
    varies by 2p(1 - p) / (D + 2) if Gaussian, by a part of it if of signs. The runs
    tell the factor, which depends little on p where their own spread does much: draws
    that happen to lie low also lie close together.

    Reference:
        Wilson (1927), doi:10.1080/01621459.1927.10502953, there for a binomial share.
    """
    mean = of.mean.clamp(0, 1)
    spread = mean * (1 - mean)
    ratio = torch.where(spread > 0, (t * of.sem).square() / spread, 0.0)
    centre = (mean + ratio / 2) / (1 + ratio)
    half = (ratio * (spread + ratio / 4)).sqrt() / (1 + ratio)
    return (centre - half).clamp(0, 1), (centre + half).clamp(0, 1)


def expectation(ritz: RitzData, f: Function) -> Tensor:
    """Return the rule's value of v.f(A)v for each run, (M, S)."""
    return (ritz.weights * f(nodes(ritz))).sum(2)


def functional(ritz: RitzData, f: Function) -> Estimate:
    """Estimate tr f(A).

    Args:
        ritz: runs from random vectors.
        f: from Ritz values to numbers, element by element.

    Returns:
        D times the rule's value of each run, with mean and standard error, (M,).

    Examples:
        >>> from curvflow.tasks.numerics import Dense, functional, lanczos
        >>> A = Dense(torch.diag(torch.arange(1.0, 41.0).double()))
        >>> signs = torch.ones(40, 2)
        >>> signs[::2, 1] = -1.0
        >>> ritz = lanczos(A, signs, num_steps=40)
        >>> round(functional(ritz, torch.log).mean.item(), 4)  # ln 40!
        110.3206
    """
    return over_forms(ritz, f(nodes(ritz)))


def nodes(ritz: RitzData) -> Tensor:
    """Return the Ritz values, where there is none the least of the run, (M, S, K)."""
    return torch.where(ritz.values.isnan(), ritz.values[..., :1], ritz.values)


def extremes(ritz: RitzData) -> tuple[Tensor, Tensor]:
    """Return the least and the greatest Ritz value of all runs, each (M,).

    They lie within the spectrum: the extreme eigenvalues are at least as far out.
    """
    values = nodes(ritz)
    return values.amin((1, 2)), values.amax((1, 2))


def moments(
    ritz: RitzData,
    order: int,
    *,
    basis: Literal["power", "chebyshev"] = "power",
    support: tuple[float, float] = (-1.0, 1.0),
) -> Tensor:
    """Return normalised moments v.p_k(A)v of every run, exact for the run's vector.

    Args:
        ritz: runs from random vectors.
        order: largest degree; at most 2K - 1 unless every run is exact.
        basis: powers, or Chebyshev's polynomials of the first kind.
        support: the interval that Chebyshev's polynomials are taken over.

    Returns:
        Draws of tr p_k(A) / D for k = 0 to `order`, (M, order + 1, S).

    Raises:
        InputError: the rules are not exact up to this order.
    """
    length = ritz.values.shape[2]
    exact = length == ritz.size or bool((ritz.steps < length).all())
    if order > 2 * length - 1 and not exact:
        raise InputError(
            f"order: expected at most {2 * length - 1} from {length} steps, got "
            f"{order}. Take more steps."
        )
    x = nodes(ritz)
    if basis == "chebyshev":
        low, high = support
        x = (2 * x - (low + high)) / (high - low)
    terms = [torch.ones_like(x), x]
    for _ in range(order - 1):
        following = 2 * x * terms[-1] - terms[-2]
        terms.append(following if basis == "chebyshev" else x * terms[-1])
    means = [(ritz.weights * term).sum(2) for term in terms[: order + 1]]
    return torch.stack(means, dim=1)
