"""Gradient descent with a decay of all weights, then of some, for stacked models."""

from __future__ import annotations

from torch import Tensor

from curvflow.tasks.rules.shared.regularisers import decay, init, selective_decay
from curvflow.tasks.training.step_context import Hyper, Step

__all__ = ["init", "step"]


def step(
    gradient_MD: Tensor, state: None, weights_MD: Tensor, hyper: Hyper, now: Step
) -> tuple[Tensor, None]:
    """Take one step: that of `l2` before epoch tau, then that of `selective_l2`.

    Args:
        gradient_MD: gradients g of the loss.
        state: none.
        weights_MD: weights w.
        hyper: lr, rate, selective_rate, decay_factor and omega, each (M, 1); the
            choices tau, maximum, at_equality and mask.
        now: tells the epoch, and holds H w of the same batch from tau on.

    Returns:
        The new weights.

    Reference:
        Jarvis (2021), Table 4.1, row 8, which leaves the epoch equal to tau undefined;
        here it is the first of the selective decay.
    """
    if now.epoch < hyper.rule.tau:
        return decay(gradient_MD, weights_MD, hyper), None
    return selective_decay(gradient_MD, weights_MD, hyper, now, "selective_rate"), None
