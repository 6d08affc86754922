"""Partially adaptive Adam, for stacked models."""

from __future__ import annotations

from torch import Tensor

from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.rules.shared.moments import (
    Moments,
    after,
    begin,
    of_mean,
    partial_scale,
    partly_descended,
)
from curvflow.tasks.training.step_context import Hyper, Preconditioner, Step


def init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> Moments:
    """Return the means before the first step."""
    return begin(weights_MD, hyper)


def step(
    gradient_MD: Tensor, state: Moments, weights_MD: Tensor, hyper: Hyper, context: Step
) -> tuple[Tensor, Moments]:
    """Take one step: w <- w - lr m / v^p, between sgd (p = 0) and Adam (p = 1/2).

    Args:
        gradient_MD: gradients g of the loss.
        state: running means.
        weights_MD: weights w.
        hyper: lr, beta1, beta2, eps, p, amsgrad, weight_decay and decoupled, each
            (M, 1).
        context: not used.

    Returns:
        The new weights and state.

    Reference:
        Chen et al. (2020), arXiv:1806.06763. Both means are corrected for their bias,
        as in Adam. eps stands outside the root, (sqrt(v) + eps)^(2p), or inside it,
        (v + eps)^p, and amsgrad takes the largest v before its bias is corrected.
    """
    decay_M1, decoupled_M1 = hyper["weight_decay"], hyper["decoupled"]
    gradient_MD = gradient_MD + (1 - decoupled_M1) * decay_M1 * weights_MD
    moments = after(gradient_MD, state, hyper)
    weights_MD = partly_descended(weights_MD, moments, hyper, decoupled_M1 * decay_M1)
    return weights_MD, moments


def preconditioner(state: Moments, weights_MD: Tensor, hyper: Hyper) -> Preconditioner:
    """Return P = (1 - beta1^t) (v / (1 - beta2^t))^p, eps and v as the step has it."""
    return of_mean(partial_scale(state, hyper), state.fading1, hyper)
