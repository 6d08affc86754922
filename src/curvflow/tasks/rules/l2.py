"""Gradient descent with weights that decay at a rate of their own, stacked."""

from __future__ import annotations

from torch import Tensor

from curvflow.tasks.rules.shared.regularisers import decay, init
from curvflow.tasks.training.step_context import Hyper, Step

__all__ = ["init", "step"]


def step(
    gradient_MD: Tensor, state: None, weights_MD: Tensor, hyper: Hyper, now: Step
) -> tuple[Tensor, None]:
    """Take one step: w <- w - lr g - decay_factor rate w.

    Args:
        gradient_MD: gradients g of the loss.
        state: none.
        weights_MD: weights w.
        hyper: lr, rate and decay_factor, each (M, 1).
        now: not used.

    Returns:
        The new weights.

    Reference:
        Jarvis (2021), Table 4.1, row 5.
    """
    return decay(gradient_MD, weights_MD, hyper), None
