"""Langevin dynamics preconditioned as RMSProp scales its steps."""

from __future__ import annotations

import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling.posteriors import Posterior, Steps
from curvflow.tasks.numerics.sampling.step_context import StepContext


def init(weights_CD: Tensor, posterior: Posterior) -> dict[str, Tensor]:
    """Return the mean square of the gradient, 0 at first, (C, D)."""
    return {"square": torch.zeros_like(weights_CD)}


def scale(state: dict[str, Tensor], steps: Steps) -> Tensor:
    """Return G, (C, D), in new memory."""
    return state["square"].sqrt().add_(steps.damping).reciprocal_()


def step(state: dict[str, Tensor], context: StepContext) -> tuple[Tensor, None]:
    """Take one step: w <- w - (lr / 2) G grad U(w) + sqrt(lr G) z.

    G = 1 / (sqrt(v) + damping), with v <- decay v + (1 - decay) g^2 and g the gradient
    of the mean loss. While v changes with the weights, the chain is biased by the
    derivative of G, which is left out; so v is fixed after the burn-in.

    Returns:
        The mean losses before the step, (C,), and None.

    Reference:
        Li et al. (2016), arXiv:1512.07666, algorithm 1, without its Gamma.
    """
    weights_CD, square_CD = state["weights"], state["square"]
    losses_C, gradients_CD = context.gradients(weights_CD)
    if context.is_adapting:
        decay = context.steps.decay
        square_CD.mul_(decay).addcmul_(gradients_CD, gradients_CD, value=1 - decay)
    drift_CD = context.drift_of(weights_CD, gradients_CD)
    scale_CD = scale(state, context.steps)
    context.descend(weights_CD, drift_CD.mul_(scale_CD))
    weights_CD.addcmul_(scale_CD.mul_(context.lr).sqrt_(), context.noise)
    return losses_C, None
