"""Stochastic gradient Langevin dynamics."""

from __future__ import annotations

from torch import Tensor

from curvflow.tasks.numerics.sampling.posteriors import Posterior
from curvflow.tasks.numerics.sampling.step_context import StepContext


def init(weights_CD: Tensor, posterior: Posterior) -> dict[str, Tensor]:
    """Return nothing: the weights are the whole state."""
    return {}


def step(state: dict[str, Tensor], context: StepContext) -> tuple[Tensor, None]:
    """Take one step: w <- w - (lr / 2) grad U(w) + sqrt(lr) z.

    With a whitening S of the posterior, w <- w - (lr / 2) S S grad U(w) + sqrt(lr) S z:
    as S is constant, the stationary law of short steps is the same.

    Returns:
        The mean losses before the step, (C,), and None.

    Reference:
        Welling and Teh (2011), Proceedings of ICML, equation 4, localised as in
        Lau et al. (2023), arXiv:2308.12108.
    """
    whitening, weights_CD = context.posterior.whitening, state["weights"]
    if whitening is None:
        return context.langevin_step(weights_CD), None
    losses_C, drift_CD = context.drift(weights_CD)
    moved_CD = context.descend(context.root * context.noise, whitening(drift_CD))
    weights_CD.add_(whitening(moved_CD))
    return losses_C, None
