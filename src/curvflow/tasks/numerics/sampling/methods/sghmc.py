"""Stochastic gradient Hamiltonian Monte Carlo."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling.posteriors import Posterior
from curvflow.tasks.numerics.sampling.step_context import StepContext


def init(weights_CD: Tensor, posterior: Posterior) -> dict[str, Tensor]:
    """Return velocities, 0 at first, (C, D)."""
    return {"velocity": torch.zeros_like(weights_CD)}


def step(state: dict[str, Tensor], context: StepContext) -> tuple[Tensor, None]:
    """Take one step: v <- (1 - a) v - (lr / 2) grad U(w) + sqrt(a lr) z, w <- w + v.

    a is the friction; at 1 the step is that of sgld.

    Returns:
        The mean losses before the step, (C,), and None.

    Reference:
        Chen et al. (2014), arXiv:1402.4102, equation 15, with eta = lr / 2 and no
        estimate of the gradient noise.
    """
    losses_C, drift_CD = context.drift(state["weights"])
    friction = context.steps.friction
    velocity_CD = context.descend(state["velocity"].mul_(1 - friction), drift_CD)
    velocity_CD.addcmul_(context.root, context.noise, value=math.sqrt(friction))
    state["weights"].add_(velocity_CD)
    return losses_C, None
