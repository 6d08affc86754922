"""RMSprop, for stacked models."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.training.step_context import Hyper, Preconditioner, Step


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
    gradient_MD: Tensor, state: State, weights_MD: Tensor, hyper: Hyper, context: Step
) -> tuple[Tensor, State]:
    """Take one step: u <- momentum u + g / (sqrt(v) + eps), w <- w - lr u.

    Args:
        gradient_MD: gradients g of the loss.
        state: running means and velocities.
        weights_MD: weights w.
        hyper: lr, alpha, eps, momentum, centered (0 or 1) and weight_decay, each
            (M, 1).
        context: not used.

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
    if mean_MD is not None:
        mean_MD = alpha * mean_MD + (1 - alpha) * gradient_MD
    spread_MD = _spread(square_MD, mean_MD, hyper)
    update_MD = gradient_MD / (spread_MD.sqrt() + hyper["eps"])
    if velocity_MD is not None:
        update_MD = velocity_MD = hyper["momentum"] * velocity_MD + update_MD
    new = State(square_MD, mean_MD, velocity_MD)
    return weights_MD - hyper["lr"] * update_MD, new


def preconditioner(state: State, weights_MD: Tensor, hyper: Hyper) -> Preconditioner:
    """Return P = sqrt(v) + eps, v as the step has it, and 2 (1 + momentum)."""
    begun_M1 = (state.square > 0).any(1, keepdim=True)
    root_MD = _spread(state.square, state.mean, hyper).sqrt() + hyper["eps"]
    diagonal_MD = torch.where(begun_M1, root_MD, torch.nan)
    return Preconditioner(diagonal_MD, hyper["lr"], 2 * (1 + hyper["momentum"]))


def _spread(square_MD: Tensor, mean_MD: Tensor | None, hyper: Hyper) -> Tensor:
    """Return the mean square, or the variance where the rule is centred."""
    if mean_MD is None:
        return square_MD
    centred_MD = (square_MD - mean_MD.square()).clamp(min=0)
    return torch.where(hyper["centered"] > 0, centred_MD, square_MD)
