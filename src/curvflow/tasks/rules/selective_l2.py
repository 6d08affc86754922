"""Gradient descent with a decay of the weights that matter least, stacked."""

from __future__ import annotations

from torch import Tensor

from curvflow.tasks.rules.shared.regularisers import init, selective_decay
from curvflow.tasks.training.step_context import Hyper, Step

__all__ = ["init", "step"]


def step(
    gradient_MD: Tensor, state: None, weights_MD: Tensor, hyper: Hyper, now: Step
) -> tuple[Tensor, None]:
    """Take one step: w <- w - lr g - decay_factor rate w m, m = [|H w| <= bound].

    Args:
        gradient_MD: gradients g of the loss.
        state: none.
        weights_MD: weights w.
        hyper: lr, rate, decay_factor and omega, each (M, 1); the choices maximum,
            at_equality and mask.
        now: holds H w of the same batch.

    Returns:
        The new weights.

    Reference:
        Jarvis (2021), Table 4.1, row 6, which protects a parameter at equality. The
        default regularises it, so that a tensor of which all H w is 0 decays.
    """
    return selective_decay(gradient_MD, weights_MD, hyper, now, "rate"), None
