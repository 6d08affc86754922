"""Gauss-Radau rules and bounds of distributions, from Ritz data alone."""

from __future__ import annotations

import torch
from torch import Tensor

from curvflow.tasks.numerics.lanczos import RitzData

# How close, relative to the spectrum, a node inside it may come to a Ritz value: any
# closer, the matrix of the rule would be too large to be diagonalised accurately.
CLOSE = 1e-8


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
    lower_MS, _ = _around(ritz, _beside(ritz, finite_MS, side=-1))
    _, upper_MS = _around(ritz, _beside(ritz, finite_MS, side=1))
    everything, nothing = x_MS == torch.inf, x_MS == -torch.inf
    lower_MS, upper_MS = (
        bound.masked_fill(everything, 1.0).masked_fill(nothing, 0.0)
        for bound in (lower_MS, upper_MS)
    )
    return lower_MS, upper_MS


def _beside(ritz: RitzData, x_MS: Tensor, *, side: int) -> Tensor:
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
