"""Gradient descent that takes its rate from the spectrum, for stacked models."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.numerics.estimators.learning_rates import best_rates, extremes
from curvflow.tasks.rules.shared.moments import identity
from curvflow.tasks.rules.shared.spectra import random_signs, spectrum
from curvflow.tasks.training.step_context import Hyper, Preconditioner, Step


class State(NamedTuple):
    """State of spectral gradient descent.

    Attributes:
        velocity: (M, D).
        rate: learning rate before any schedule, (M, 1).
        momentum: decay of the velocity, (M, 1).
        base: `lr` before any schedule, (M, 1).
    """

    velocity: Tensor
    rate: Tensor
    momentum: Tensor
    base: Tensor


def init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> State:
    """Return what there is before any spectrum: `lr`, and no momentum."""
    lr_M1 = hyper["lr"]
    zeros = torch.zeros_like(weights_MD)
    return State(zeros, lr_M1, torch.zeros_like(lr_M1), lr_M1)


def step(
    gradient_MD: Tensor, state: State, weights_MD: Tensor, hyper: Hyper, context: Step
) -> tuple[Tensor, State]:
    """Take one step: v <- rho v + g, w <- w - a v, or along g + rho v with Nesterov.

    a and rho are the rate and the momentum that are best for a quadratic of the
    spectrum that Lanczos sees in the first batch of every `refresh_every`-th epoch.
    g is with weight_decay w, and the spectrum with weight_decay.

    Args:
        gradient_MD: gradients g of the loss.
        state: velocity v, and the rates in force.
        weights_MD: weights w.
        hyper: lr, bulk_above, max_momentum and weight_decay, each (M, 1), and the
            choices momentum, first_refresh, refresh_every, num_steps and matrix.
        context: for the network, the batch and draws.

    Returns:
        The new weights and state.

    Reference:
        Granziol (2020), section 4.3.2, with the rates of `best_rates`.
    """
    if _is_due(hyper, context):
        state = _refreshed(state, weights_MD, hyper, context)
    direction_MD = torch.addcmul(gradient_MD, hyper["weight_decay"], weights_MD)
    velocity_MD = torch.addcmul(direction_MD, state.momentum, state.velocity)
    if hyper.rule.momentum == "polyak":
        direction_MD = velocity_MD
    else:
        direction_MD = torch.addcmul(direction_MD, state.momentum, velocity_MD)
    rate_M1, _ = rates(state, hyper)
    weights_MD = torch.addcmul(weights_MD, rate_M1, direction_MD, value=-1)
    return weights_MD, state._replace(velocity=velocity_MD)


def rates(state: State, hyper: Hyper) -> tuple[Tensor, Tensor]:
    """Return the learning rate and the momentum in force, (M, 1) each."""
    return state.rate * (hyper["lr"] / state.base), state.momentum


def _is_due(hyper: Hyper, context: Step) -> bool:
    since = context.epoch - hyper.rule.first_refresh
    return context.begins_epoch and since >= 0 and since % hyper.rule.refresh_every == 0


def _refreshed(state: State, weights_MD: Tensor, hyper: Hyper, context: Step) -> State:
    """Return the state with new rates; old ones where the spectrum has none."""
    ritz = spectrum(
        random_signs(weights_MD, context),
        weights_MD,
        context,
        matrix=hyper.rule.matrix,
        num_steps=hyper.rule.num_steps,
    )
    ends = extremes(ritz.values, ritz.weights, hyper["bulk_above"])
    decay_M1 = hyper["weight_decay"].double()
    rate_M1, momentum_M1 = best_rates(
        ends[0] + decay_M1,
        ends[1] + decay_M1,
        hyper.rule.momentum,
        hyper["max_momentum"].double(),
    )
    known_M1 = ritz.is_finite.unsqueeze(1) & torch.isfinite(rate_M1)
    return state._replace(
        rate=torch.where(known_M1, rate_M1.to(state.rate), state.rate),
        momentum=torch.where(known_M1, momentum_M1.to(state.rate), state.momentum),
    )


def preconditioner(state: State, weights_MD: Tensor, hyper: Hyper) -> Preconditioner:
    """Return P = I, and the bound of the momentum in force."""
    is_nesterov = torch.tensor(
        hyper.rule.momentum != "polyak", device=weights_MD.device
    )
    return identity(weights_MD, *rates(state, hyper), is_nesterov=is_nesterov)
