"""Metropolis-adjusted Langevin algorithm: exact, over all the data."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling.posteriors import Posterior
from curvflow.tasks.numerics.sampling.step_context import StepContext
from curvflow.tasks.numerics.sampling.whitening import BlockWhitening, Whitening


class Position(NamedTuple):
    """Positions of chains, with losses over all the data.

    Attributes:
        weights: (C, D).
        losses: mean losses, (C,).
        energy: -log p up to a constant, (C,).
        drift: its gradient, (C, D).
    """

    weights: Tensor
    losses: Tensor
    energy: Tensor
    drift: Tensor


def evaluate(posterior: Posterior, weights_CD: Tensor) -> Position:
    """Return losses, energy and drift at weights (C, D)."""
    losses_C, gradients_CD = posterior.losses.gradients(weights_CD, None)
    drift_CD = posterior.drift(weights_CD, gradients_CD)
    energy_C = posterior.energy(weights_CD, losses_C)
    return Position(weights_CD, losses_C, energy_C, drift_CD)


def propose(
    posterior: Posterior,
    here: Position,
    lr_CD: Tensor,
    noise_CD: Tensor,
    whitening: Whitening | BlockWhitening | None = None,
) -> tuple[Position, Tensor]:
    """Propose a Langevin step, with the probability that it is accepted.

    With s the sum of the drifts at both ends and z the noise, the logarithm of the
    ratio of the proposal densities is sqrt(lr)/2 z.s - lr/8 s.s: no difference of
    squares of large numbers. In the constant metric S S the step is that in
    coordinates S^-1 w, and s is S times the sum.

    Args:
        posterior: the sampled density.
        here: the positions before the step.
        lr_CD: step sizes, (C, 1), or (C, D) with a preconditioner.
        noise_CD: standard normal.
        whitening: S; None for no map.

    Returns:
        The proposals and the probabilities, (C,); NaN where a proposal is not finite.

    Reference:
        Roberts and Tweedie (1996), doi:10.2307/3318418, section 1.4.2.
    """
    if whitening is not None:
        return _propose_mapped(posterior, here, lr_CD, noise_CD, whitening)
    root_CD = lr_CD.sqrt()
    there_CD = torch.addcmul(here.weights, lr_CD, here.drift, value=-0.5)
    there = evaluate(posterior, there_CD.addcmul_(root_CD, noise_CD))
    sum_CD = here.drift + there.drift
    along_CD = (noise_CD * (root_CD / 2)).addcmul_(lr_CD, sum_CD, value=-0.125)
    ratio_C = here.energy - there.energy + torch.linalg.vecdot(sum_CD, along_CD)
    return there, ratio_C.clamp(max=0).exp()


def _propose_mapped(
    posterior: Posterior,
    here: Position,
    lr_C1: Tensor,
    noise_CD: Tensor,
    whitening: Whitening | BlockWhitening,
) -> tuple[Position, Tensor]:
    """Propose a step in the coordinates S^-1 w, with its probability."""
    root_C1 = lr_C1.sqrt()
    moved_CD = whitening(
        torch.addcmul(root_C1 * noise_CD, lr_C1, whitening(here.drift), value=-0.5)
    )
    there = evaluate(posterior, here.weights + moved_CD)
    sum_CD = whitening(here.drift + there.drift)
    along_CD = (noise_CD * (root_C1 / 2)).addcmul_(lr_C1, sum_CD, value=-0.125)
    ratio_C = here.energy - there.energy + torch.linalg.vecdot(sum_CD, along_CD)
    return there, ratio_C.clamp(max=0).exp()


# Optimal as the dimension grows: Roberts and Rosenthal (1998).
TARGET_ACCEPTANCE = 0.574


def init(weights_CD: Tensor, posterior: Posterior) -> dict[str, Tensor]:
    """Return loss, energy and drift at the start; a step computes those at its end."""
    position = evaluate(posterior, weights_CD)._asdict()
    return {name: position[name].clone() for name in ("losses", "energy", "drift")}


def step(state: dict[str, Tensor], context: StepContext) -> tuple[Tensor, Tensor]:
    """Propose a Langevin step; accept or reject it.

    A proposal that is not finite is rejected. With a whitening S of the posterior, the
    step is taken in the metric S S: drift S S and noise S. As S is constant, the
    stationary law is the same.

    Returns:
        The mean losses before the step and the probabilities, (C,).

    Reference:
        Roberts and Rosenthal (1998), doi:10.1111/1467-9868.00123; Girolami and
        Calderhead (2011), doi:10.1111/j.1467-9868.2010.00765.x, of constant metrics.
    """
    here = Position(**{name: state[name] for name in Position._fields})
    posterior = context.posterior
    there, probability_C = propose(
        posterior, here, context.lr, context.noise, posterior.whitening
    )
    accepts_C = context.acceptance_draws < probability_C
    for name in ("losses", "energy"):
        state[name] = torch.where(accepts_C, getattr(there, name), state[name])
    for name in ("weights", "drift"):
        state[name] = torch.where(accepts_C[:, None], getattr(there, name), state[name])
    return here.losses, probability_C.nan_to_num(0.0)
