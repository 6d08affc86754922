"""Steps by the exact quadratic model of the batch, along a few directions.

q(d) = g'd + d'(G + l2 + damping) d / 2, with the Gauss-Newton matrix G of the batch,
stands for what the step d changes of the loss with its penalty. K directions, 1 or 2.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor

from curvflow.tasks.rules.shared.kfac_blocks import Held
from curvflow.tasks.rules.shared.kfac_networks import Networks
from curvflow.tasks.training.state import leaves, with_leaves
from curvflow.tasks.training.step_context import Hyper

# Share of the determinant of two directions that are not one up to rounding.
APART = 1e-10


class Move(NamedTuple):
    """A step of each model, and what it is expected to do; in double precision.

    Attributes:
        change: of the weights, (M, D), in their precision.
        rate: factor of the preconditioned gradient, (M, 1).
        momentum: factor of the step before, (M, 1).
        predicted: q, (M, 1); NaN where no model was requested.
        loss: before the step, without the penalty, (M, 1); NaN likewise.
        damping: of the preconditioner, (M, 1).
        inverses: that the direction was found by.
    """

    change: Tensor
    rate: Tensor
    momentum: Tensor
    predicted: Tensor
    loss: Tensor
    damping: Tensor
    inverses: Held


class Quadratic(NamedTuple):
    """The model along K directions, in double precision.

    Attributes:
        slopes: g'd, (M, K).
        curved: d'G d', (M, K, K).
        matrix: the same with l2 and the damping, (M, K, K).
        loss: where it touches, (M, 1).
    """

    slopes: Tensor
    curved: Tensor
    matrix: Tensor
    loss: Tensor

    def at(self, factors_MK: Tensor) -> Tensor:
        """Return q of a sum of the directions times factors, (M, 1)."""
        linear = (self.slopes * factors_MK).sum(1, keepdim=True)
        return linear + _form(self.matrix, factors_MK) / 2


def _form(matrix_MKK: Tensor, factors_MK: Tensor) -> Tensor:
    return torch.einsum("mi,mij,mj->m", factors_MK, matrix_MKK, factors_MK).unsqueeze(1)


def quadratic(
    networks: Networks,
    weights_MD: Tensor,
    gradient_MD: Tensor,
    directions: list[Tensor],
    damping_M1: Tensor,
) -> Quadratic:
    """Return the model along some directions.

    Args:
        networks: of the step.
        weights_MD: where it touches.
        gradient_MD: with that of the penalty.
        directions: K vectors, (M, D) each.
        damping_M1: l2 and the damping of the model.
    """
    losses_M, curved_MKK = networks.along(weights_MD, directions)
    models, size = weights_MD.shape
    stacked_MKD = weights_MD.new_empty(
        models, len(directions), size, dtype=torch.float64
    )
    for number, direction_MD in enumerate(
        directions
    ):  # what is stacked first is copied twice
        stacked_MKD[:, number] = direction_MD
    inner_MKK = stacked_MKD @ stacked_MKD.mT
    slopes_MK = (stacked_MKD @ gradient_MD.double().unsqueeze(2)).squeeze(2)
    matrix_MKK = curved_MKK + damping_M1.double().unsqueeze(2) * inner_MKK
    return Quadratic(slopes_MK, curved_MKK, matrix_MKK, losses_M.unsqueeze(1))


def factors_of(model: Quadratic, hyper: Hyper) -> Tensor:
    """Return the factors of the directions, (M, K).

    Args:
        model: along the preconditioned gradient, and perhaps the step before.
        hyper: with lr, and the choices step and momentum, or a momentum of each model.
    """
    rule, count = hyper.rule, model.slopes.shape[1]
    rate_M1 = hyper["lr"].double().expand(len(model.slopes), 1)
    if count == 1:
        if rule.step == "lr":
            return rate_M1
        return _best(model.slopes, model.matrix[:, 0], rate_M1)
    across_M1, along_M1 = model.matrix[:, 0, 1:], model.matrix[:, 1, 1:]
    if rule.momentum != "quadratic":
        momentum_M1 = hyper["momentum"].double().expand_as(rate_M1)
        if rule.step == "quadratic":
            slope_M1 = model.slopes[:, :1] + momentum_M1 * across_M1
            rate_M1 = _best(slope_M1, model.matrix[:, 0, :1], rate_M1)
        return torch.cat([rate_M1, momentum_M1], dim=1)
    if rule.step == "lr":
        slope_M1 = model.slopes[:, 1:] + rate_M1 * across_M1
        momentum_M1 = _best(slope_M1, along_M1, torch.zeros_like(rate_M1))
        return torch.cat([rate_M1, momentum_M1], dim=1)
    return _best_of_two(model, rate_M1)


def _best(slope_M1: Tensor, curved_M1: Tensor, otherwise_M1: Tensor) -> Tensor:
    """Return the minimiser of a parabola; where it has none, another number."""
    return torch.where(curved_M1 > 0, -slope_M1 / curved_M1, otherwise_M1)


def _best_of_two(model: Quadratic, otherwise_M1: Tensor) -> Tensor:
    """Return the minimiser in a plane, or along the first direction alone."""
    slope_0, slope_1 = model.slopes.unbind(1)
    first, across = model.matrix[:, 0].unbind(1)
    second = model.matrix[:, 1, 1]
    determinant = first * second - across.square()
    is_plane = (first > 0) & (determinant > APART * first * second)
    alone = _best(model.slopes[:, :1], model.matrix[:, 0, :1], otherwise_M1)
    both = torch.stack(
        [across * slope_1 - second * slope_0, across * slope_0 - first * slope_1], 1
    )
    only_first = torch.cat([alone, torch.zeros_like(alone)], dim=1)
    return torch.where(is_plane[:, None], both / determinant[:, None], only_first)


def shortened(model: Quadratic, factors_MK: Tensor, most_M1: Tensor) -> Tensor:
    """Return factors of a step d so short that d'G d / 2 is at most a number."""
    half_M1 = _form(model.curved, factors_MK) / 2
    share_M1 = (most_M1.double() / half_M1).sqrt()
    return factors_MK * torch.where(half_M1 > most_M1, share_M1, 1.0)


def better(first: Move, second: Move) -> Move:
    """Return of each model the step with the lower q; NaN is above all numbers."""
    values = [move.predicted.nan_to_num(nan=torch.inf) for move in (first, second)]
    is_second = values[1] < values[0]

    def chosen(of_first: Tensor | None, of_second: Tensor | None) -> Tensor | None:
        if of_first is None or of_second is None:
            return None
        return torch.where(
            is_second.view(-1, *[1] * (of_first.ndim - 1)), of_second, of_first
        )

    return cast("Move", with_leaves(first, map(chosen, leaves(first), leaves(second))))
