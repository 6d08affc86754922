"""Adagrad, for stacked models."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.training.step_context import Hyper, Preconditioner, Step


class State(NamedTuple):
    """State of Adagrad.

    Attributes:
        total: sum of the gradient's square, (M, D).
        taken: steps, (M, 1).
    """

    total: Tensor
    taken: Tensor


def init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> State:
    """Return the sums before the first step."""
    first = hyper["initial_accumulator"]
    return State(first.expand_as(weights_MD), torch.zeros_like(first))


def step(
    gradient_MD: Tensor, state: State, weights_MD: Tensor, hyper: Hyper, context: Step
) -> tuple[Tensor, State]:
    """Take one step: s <- s + g^2, w <- w - lr / (1 + t lr_decay) g / (sqrt(s) + eps).

    Args:
        gradient_MD: gradients g of the loss.
        state: sums s, and the number t of steps taken before.
        weights_MD: weights w.
        hyper: lr, lr_decay, eps and weight_decay, each (M, 1).
        context: not used.

    Returns:
        The new weights and state.

    Reference:
        Duchi, Hazan and Singer (2011), Journal of Machine Learning Research 12, with
        diagonal matrices, in the form of torch.optim.Adagrad.
    """
    gradient_MD = gradient_MD + hyper["weight_decay"] * weights_MD
    total_MD = state.total + gradient_MD.square()
    rate_M1 = hyper["lr"] / (1 + state.taken * hyper["lr_decay"])
    update_MD = rate_M1 * gradient_MD / (total_MD.sqrt() + hyper["eps"])
    return weights_MD - update_MD, State(total_MD, state.taken + 1)


def preconditioner(state: State, weights_MD: Tensor, hyper: Hyper) -> Preconditioner:
    """Return P = sqrt(s) + eps, the rate of the next step, and 2."""
    root_MD = state.total.sqrt() + hyper["eps"]
    rate_M1 = hyper["lr"] / (1 + state.taken * hyper["lr_decay"])
    diagonal_MD = torch.where(state.taken > 0, root_MD, torch.nan)
    return Preconditioner(diagonal_MD, rate_M1, torch.full_like(rate_M1, 2.0))
