"""Stochastic gradient descent with momentum, for stacked models."""

from __future__ import annotations

import torch
from torch import Tensor

from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.rules.shared.moments import identity
from curvflow.tasks.training.step_context import Hyper, Preconditioner, Step

State = Tensor | None


def init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> State:
    """Return the first velocities (M, D); None where no model has momentum."""
    return torch.zeros_like(weights_MD) if hyper["momentum"].any() else None


def step(
    gradient_MD: Tensor, state: State, weights_MD: Tensor, hyper: Hyper, context: Step
) -> tuple[Tensor, State]:
    """Take one step: v <- momentum v + g, w <- w - lr v, with g + weight_decay w for g.

    Args:
        gradient_MD: gradients g of the loss.
        state: velocities v.
        weights_MD: weights w.
        hyper: lr, momentum, nesterov (0 or 1) and weight_decay, each (M, 1).
        context: not used.

    Returns:
        The new weights and velocities.

    Reference:
        Sutskever et al. (2013), Proceedings of ICML, for Nesterov's momentum in the
        form of torch.optim.SGD: v is replaced by g + momentum v.
    """
    # addcmul makes no temporaries: a step on the CPU is bound by memory.
    direction_MD = gradient_MD
    if not hyper.is_zero("weight_decay"):
        direction_MD = torch.addcmul(gradient_MD, hyper["weight_decay"], weights_MD)
    if state is not None:
        state = torch.addcmul(direction_MD, hyper["momentum"], state)
        ahead_MD = torch.addcmul(direction_MD, hyper["momentum"], state)
        direction_MD = torch.where(hyper["nesterov"] > 0, ahead_MD, state)
    return torch.addcmul(weights_MD, hyper["lr"], direction_MD, value=-1), state


def preconditioner(state: State, weights_MD: Tensor, hyper: Hyper) -> Preconditioner:
    """Return P = I, and 2 (1 + momentum), divided by 1 + 2 momentum with Nesterov."""
    return identity(
        weights_MD, hyper["lr"], hyper["momentum"], is_nesterov=hyper["nesterov"] > 0
    )
