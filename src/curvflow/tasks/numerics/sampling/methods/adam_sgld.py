"""Langevin dynamics with the preconditioner and the momentum of Adam."""

from __future__ import annotations

import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling.posteriors import Posterior, Steps
from curvflow.tasks.numerics.sampling.step_context import StepContext

# Of the mean gradient: Adam's beta_1.
MOMENTUM = 0.9

# On a quadratic of curvature c, with h = lr G c / 2, the chain is an ARMA(2, 1) process
# of variance (1 + 2 b h / (1 - b^2)) / (1 - h (1 - b) / (2 (1 + b))) times 1 / c, b the
# momentum: to first order 1 + LAG h / 2, where sgld has 1 + h / 2.
LAG = (1 + MOMENTUM) / (1 - MOMENTUM)


def init(weights_CD: Tensor, posterior: Posterior) -> dict[str, Tensor]:
    """Return mean gradient and mean square (C, D), and their counts, (C, 1)."""
    zeros_CD = torch.zeros_like(weights_CD)
    return {
        "mean": zeros_CD,
        "square": zeros_CD.clone(),
        "count": zeros_CD[:, :1].clone(),
        "squares": zeros_CD[:, :1].clone(),
    }


def scale(state: dict[str, Tensor], steps: Steps) -> Tensor:
    """Return G, (C, D), in new memory; before the first step 1 / damping."""
    square_CD = state["square"] / (1 - steps.decay ** state["squares"].clamp(min=1))
    return square_CD.sqrt_().add_(steps.damping).reciprocal_()


def step(state: dict[str, Tensor], context: StepContext) -> tuple[Tensor, None]:
    """Take one step: w <- w - (lr / 2) G (nbeta m + gamma (w - w*)) + sqrt(lr G) z.

    G = 1 / (sqrt(v) + damping); m and v are the running means of g and g^2, without the
    bias of their start at 0, and g is the gradient of the mean loss. v is fixed after
    the burn-in. m lags by some ten steps: the chain is exact as steps become small.

    Returns:
        The mean losses before the step, (C,), and None.

    Reference:
        Kingma and Ba (2015), arXiv:1412.6980, algorithm 1, for m and v; Li et al.
        (2016), arXiv:1512.07666, for the step.
    """
    weights_CD, decay = state["weights"], context.steps.decay
    losses_C, gradients_CD = context.gradients(weights_CD)
    mean_CD = state["mean"].lerp_(gradients_CD, 1 - MOMENTUM)
    state["count"] += 1
    if context.is_adapting:
        state["square"].mul_(decay)
        state["square"].addcmul_(gradients_CD, gradients_CD, value=1 - decay)
        state["squares"] += 1
    mean_CD = mean_CD / (1 - MOMENTUM ** state["count"])
    drift_CD = context.drift_of(weights_CD, mean_CD)
    scale_CD = scale(state, context.steps)
    context.descend(weights_CD, drift_CD.mul_(scale_CD))
    weights_CD.addcmul_(scale_CD.mul_(context.lr).sqrt_(), context.noise)
    return losses_C, None
