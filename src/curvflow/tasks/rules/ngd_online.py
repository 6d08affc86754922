"""Online natural gradient descent, for stacked models."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.numerics.derivatives.row_factors import (
    Law,
    OnlineFisher,
    first_fisher,
    isotropic,
    preconditioned,
    updated,
)
from curvflow.tasks.training.step_context import Hyper, Step

# One for each axis of more than one entry of each tensor, in order.
State = tuple[OnlineFisher, ...]

# Steps at the beginning that all update the moments.
FIRST_STEPS = 10


def init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> State:
    """Return moments of the shapes needed; the first gradient replaces them."""
    floor_M11 = hyper["eps"].unsqueeze(2)
    sizes = [size for shape in problem.network.layout.shapes for size in shape]
    return tuple(
        isotropic(floor_M11, hyper.rule.rank_of(size), size)
        for size in sizes
        if size > 1
    )


def step(
    gradient_MD: Tensor, state: State, weights_MD: Tensor, hyper: Hyper, context: Step
) -> tuple[Tensor, State]:
    """Take one step: w <- w - lr P g, P g of each tensor as long as g.

    P multiplies the gradient tensor along one axis after the other by (F + alpha / D
    max(tr F, eps) I)^-1, F being running second moments along this axis, of D entries.

    Args:
        gradient_MD: gradients g of the loss.
        state: moments of each axis.
        weights_MD: weights w.
        hyper: lr, alpha, share, delta and eps, each (M, 1), and the choices rank and
            period.
        context: for the shapes of the tensors and the count of steps.

    Returns:
        The new weights and moments.

    Reference:
        Povey, Zhang and Khudanpur (2015), arXiv:1410.7455, there for the two sides of a
        layer's weights, here for every axis of a tensor's gradient.
    """
    fishers = iter(state)
    turned = [
        _turned(tensor, fishers, hyper, context.count)
        for tensor in context.problem.network.layout.unflatten(gradient_MD)
    ]
    direction_MD = torch.cat([tensor.flatten(1) for tensor, _ in turned], dim=1)
    new = tuple(fisher for _, several in turned for fisher in several)
    return torch.addcmul(weights_MD, hyper["lr"], direction_MD, value=-1), new


def _turned(
    tensor: Tensor, fishers: Iterator[OnlineFisher], hyper: Hyper, count: int
) -> tuple[Tensor, list[OnlineFisher]]:
    """Return one tensor of the gradients preconditioned, and the moments after it."""
    new = []
    for axis in range(1, tensor.ndim):
        size = tensor.shape[axis]
        if size > 1:
            last = tensor.movedim(axis, -1)
            matrices_MND = last.reshape(len(last), -1, size)
            found_MND, fisher = _once(matrices_MND, next(fishers), hyper, count)
            tensor = found_MND.reshape(last.shape).movedim(-1, axis)
            new.append(fisher)
    return tensor, new


def _once(
    matrices_MND: Tensor, fisher: OnlineFisher, hyper: Hyper, count: int
) -> tuple[Tensor, OnlineFisher]:
    """Return matrices preconditioned by the moments so far, and the moments after."""
    law = Law(*(hyper[name].unsqueeze(2) for name in Law._fields))
    if count == 0:
        fisher = first_fisher(matrices_MND, fisher.rows.shape[1], law)
    alpha_M11 = hyper["alpha"].unsqueeze(2)
    found_MND = preconditioned(fisher, matrices_MND, alpha_M11, law.eps)
    if count < FIRST_STEPS or count % hyper.rule.period == 0:
        fisher = updated(fisher, matrices_MND, law)
    return found_MND, fisher
