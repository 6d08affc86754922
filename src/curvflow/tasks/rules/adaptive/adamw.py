"""Adam with decoupled weight decay, for stacked models."""

from __future__ import annotations

from torch import Tensor

from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.rules.shared.moments import (
    Moments,
    after,
    begin,
    descended,
    of_mean,
    scale,
)
from curvflow.tasks.training.step_context import Hyper, Preconditioner, Step


def init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> Moments:
    """Return the means before the first step."""
    return begin(weights_MD, hyper)


def step(
    gradient_MD: Tensor, state: Moments, weights_MD: Tensor, hyper: Hyper, context: Step
) -> tuple[Tensor, Moments]:
    """Take one step: w <- (1 - lr weight_decay) w - lr m / (sqrt(v) + eps).

    Args:
        gradient_MD: gradients g of the loss.
        state: running means.
        weights_MD: weights w.
        hyper: lr, beta1, beta2, eps, amsgrad and weight_decay, each (M, 1).
        context: not used.

    Returns:
        The new weights and state.

    Reference:
        Loshchilov and Hutter (2019), arXiv:1711.05101, in the form of
        torch.optim.AdamW: the decay is multiplied by lr. amsgrad takes the largest v
        before its bias is corrected.
    """
    moments = after(gradient_MD, state, hyper)
    return descended(weights_MD, moments, hyper, hyper["weight_decay"]), moments


def preconditioner(state: Moments, weights_MD: Tensor, hyper: Hyper) -> Preconditioner:
    """Return P = (1 - beta1^t) (sqrt(v / (1 - beta2^t)) + eps), v as in a step."""
    return of_mean(scale(state, hyper), state.fading1, hyper)
