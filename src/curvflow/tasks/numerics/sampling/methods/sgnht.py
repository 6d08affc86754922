"""Stochastic gradient Nose-Hoover thermostat."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling.posteriors import Posterior
from curvflow.tasks.numerics.sampling.step_context import StepContext


def init(weights_CD: Tensor, posterior: Posterior) -> dict[str, Tensor]:
    """Return velocities (C, D) and what the friction exceeds its setting by, (C, 1)."""
    return {
        "velocity": torch.zeros_like(weights_CD),
        "excess": torch.zeros_like(weights_CD[:, :1]),
    }


def step(state: dict[str, Tensor], context: StepContext) -> tuple[Tensor, None]:
    """Take one step of sghmc; its friction a responds to the heat of velocities.

    a <- a + a_0^2 ((2 - a) v.v / (lr D) - 1): too hot, as by the noise of batches,
    and the friction rises, until it is that of all the noise together. lr / (2 - a) is
    what sghmc of friction a gives v^2 where all noise is its own.
    The factor, one over the thermostat's inertia, makes it respond within the 1 / a_0
    steps in which friction acts, whatever the scale of the weights.

    Returns:
        The mean losses before the step, (C,), and None.

    Reference:
        Ding et al. (2014), Advances in NIPS 27, algorithm 2, with inertia
        lr / (2 a_0^2) in place of 1, and the localization in the potential.
    """
    losses_C, drift_CD = context.drift(state["weights"])
    friction, velocity_CD = context.steps.friction, state["velocity"]
    left_C1 = 1 - friction - state["excess"]
    velocity_CD.mul_(left_C1)
    context.descend(velocity_CD, drift_CD)
    velocity_CD.addcmul_(context.root, context.noise, value=math.sqrt(friction))
    state["weights"].add_(velocity_CD)
    heat_C1 = torch.linalg.vecdot(velocity_CD, velocity_CD)[:, None] * (1 + left_C1)
    state["excess"] += friction**2 * (
        heat_C1 / (context.lr * context.posterior.num_free) - 1
    )
    return losses_C, None
