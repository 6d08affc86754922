"""RMSprop, for stacked models."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from curvflow.tasks.problems import Problem
from curvflow.tasks.steps import Hyper, Step


class State(NamedTuple):
    """Running means of RMSprop.

    Attributes:
        square: mean of the gradient's square, (M, D).
        mean: of the gradient, (M, D); None where no model is centred.
        velocity: (M, D); None where no model has momentum.
    """

    square: Tensor
    mean: Tensor | None
    velocity: Tensor | None


def init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> State:
    """Return the means and velocities before the first step."""
    zeros = torch.zeros_like(weights_MD)
    return State(
        zeros,
        zeros if hyper["centered"].any() else None,
        zeros if hyper["momentum"].any() else None,
    )


def step(
    gradient_MD: Tensor, state: State, weights_MD: Tensor, hyper: Hyper, now: Step
) -> tuple[Tensor, State]:
    """Take one step: u <- momentum u + g / (sqrt(v) + eps), w <- w - lr u.

    Args:
        gradient_MD: gradients g of the loss.
        state: running means and velocities.
        weights_MD: weights w.
        hyper: lr, alpha, eps, momentum, centered (0 or 1) and weight_decay, each
            (M, 1).
        now: not used.

    Returns:
        The new weights and state.

    Reference:
        Tieleman and Hinton (2012), Neural networks for machine learning, lecture 6.5;
        centered: Graves (2013), arXiv:1308.0850. In the form of torch.optim.RMSprop,
        but that a centred square which rounding makes negative counts as 0.
    """
    alpha, mean_MD, velocity_MD = hyper["alpha"], state.mean, state.velocity
    gradient_MD = gradient_MD + hyper["weight_decay"] * weights_MD
    square_MD = alpha * state.square + (1 - alpha) * gradient_MD.square()
    spread_MD = square_MD
    if mean_MD is not None:
        mean_MD = alpha * mean_MD + (1 - alpha) * gradient_MD
        centred_MD = (square_MD - mean_MD.square()).clamp(min=0)
        spread_MD = torch.where(hyper["centered"] > 0, centred_MD, square_MD)
    update_MD = gradient_MD / (spread_MD.sqrt() + hyper["eps"])
    if velocity_MD is not None:
        update_MD = velocity_MD = hyper["momentum"] * velocity_MD + update_MD
    new = State(square_MD, mean_MD, velocity_MD)
    return weights_MD - hyper["lr"] * update_MD, new
