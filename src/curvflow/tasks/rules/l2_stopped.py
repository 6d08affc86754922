"""Gradient descent with a decay of the weights that stops, for stacked models."""

from __future__ import annotations

import torch
from torch import Tensor

from curvflow.tasks.rules.shared.regularisers import decay, init
from curvflow.tasks.training.step_context import Hyper, Step

__all__ = ["init", "step"]


def step(
    gradient_MD: Tensor, state: None, weights_MD: Tensor, hyper: Hyper, now: Step
) -> tuple[Tensor, None]:
    """Take one step: that of `l2` in the epochs before tau, then w <- w - lr g.

    Args:
        gradient_MD: gradients g of the loss.
        state: none.
        weights_MD: weights w.
        hyper: lr, rate and decay_factor, each (M, 1); the choice tau.
        now: tells the epoch.

    Returns:
        The new weights.

    Reference:
        Jarvis (2021), Table 4.1, row 7; epochs count from 0, and the one equal to tau
        is the first without decay.
    """
    if now.epoch < hyper.rule.tau:
        return decay(gradient_MD, weights_MD, hyper), None
    return torch.addcmul(weights_MD, hyper["lr"], gradient_MD, value=-1), None
