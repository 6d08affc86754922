"""Lion, for stacked models."""

from __future__ import annotations

import torch
from torch import Tensor

from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.training.step_context import Hyper, Step


def init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> Tensor:
    """Return the mean gradients before the first step, (M, D)."""
    return torch.zeros_like(weights_MD)


def step(
    gradient_MD: Tensor, state: Tensor, weights_MD: Tensor, hyper: Hyper, context: Step
) -> tuple[Tensor, Tensor]:
    """Take one step: w <- (1 - lr weight_decay) w - lr sign(beta1 m + (1 - beta1) g).

    Args:
        gradient_MD: gradients g of the loss.
        state: mean gradients m.
        weights_MD: weights w.
        hyper: lr, beta1, beta2 and weight_decay, each (M, 1).
        context: not used.

    Returns:
        The new weights, and m <- beta2 m + (1 - beta2) g.

    Reference:
        Chen et al. (2023), arXiv:2302.06675.
    """
    rate_M1 = hyper["lr"]
    sign_MD = torch.lerp(gradient_MD, state, hyper["beta1"]).sign()
    kept_MD = weights_MD * (1 - rate_M1 * hyper["weight_decay"])
    return kept_MD - rate_M1 * sign_MD, torch.lerp(gradient_MD, state, hyper["beta2"])
