"""Adam, for stacked models."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.rules.shared.moments import of_mean
from curvflow.tasks.training.step_context import Hyper, Preconditioner, Step


class State(NamedTuple):
    """Running means of Adam.

    Attributes:
        mean: of the gradient, (M, D).
        square: of its square, (M, D).
        fading1: beta1^t of each model, (M, 1).
        fading2: beta2^t of each model, (M, 1).
    """

    mean: Tensor
    square: Tensor
    fading1: Tensor
    fading2: Tensor


def init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> State:
    """Return the means before the first step."""
    zeros = torch.zeros_like(weights_MD)
    ones = torch.ones_like(hyper["beta1"])
    return State(zeros, zeros, ones, ones)


def step(
    gradient_MD: Tensor, state: State, weights_MD: Tensor, hyper: Hyper, context: Step
) -> tuple[Tensor, State]:
    """Take one step: w <- w - lr m / (sqrt(v) + eps), m and v corrected for their bias.

    Args:
        gradient_MD: gradients g of the loss.
        state: running means.
        weights_MD: weights w.
        hyper: lr, beta1, beta2, eps and weight_decay, each (M, 1).
        context: not used.

    Returns:
        The new weights and state.

    Reference:
        Kingma and Ba (2015), arXiv:1412.6980, Algorithm 1. weight_decay w is added to
        g, as in torch.optim.Adam.
    """
    beta1, beta2 = hyper["beta1"], hyper["beta2"]
    gradient_MD = gradient_MD + hyper["weight_decay"] * weights_MD
    mean_MD = beta1 * state.mean + (1 - beta1) * gradient_MD
    square_MD = beta2 * state.square + (1 - beta2) * gradient_MD.square()
    fading1, fading2 = state.fading1 * beta1, state.fading2 * beta2
    root_MD = (square_MD / (1 - fading2)).sqrt() + hyper["eps"]
    update_MD = hyper["lr"] * mean_MD / (1 - fading1) / root_MD
    return weights_MD - update_MD, State(mean_MD, square_MD, fading1, fading2)


def preconditioner(state: State, weights_MD: Tensor, hyper: Hyper) -> Preconditioner:
    """Return P = (1 - beta1^t) (sqrt(v / (1 - beta2^t)) + eps)."""
    root_MD = (state.square / (1 - state.fading2)).sqrt() + hyper["eps"]
    return of_mean(root_MD, state.fading1, hyper)
