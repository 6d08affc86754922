"""Averages of the weights of spectral gradient descent, for stacked models."""

from __future__ import annotations

from torch import Tensor

from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.rules import spectral_sgd
from curvflow.tasks.rules.shared import averages
from curvflow.tasks.rules.shared.averages import Averaged
from curvflow.tasks.training.step_context import Hyper, Step


def init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> Averaged:
    """Return velocity, rates and average before the first step."""
    inner = spectral_sgd.init(weights_MD, hyper, problem)
    return averages.begin(inner, weights_MD, hyper)


def step(
    gradient_MD: Tensor, state: Averaged, weights_MD: Tensor, hyper: Hyper, now: Step
) -> tuple[Tensor, Averaged]:
    """Take one step of `spectral_sgd`, and average the weights that are due.

    Args:
        gradient_MD: gradients g of the loss.
        state: that of `spectral_sgd`, and the average.
        weights_MD: weights w.
        hyper: those of `spectral_sgd`, and count_before, each (M, 1).
        now: where training is.

    Returns:
        The new weights, which do not depend on the average, and the state.

    Reference:
        Granziol (2020), section 4.3.2: averages from epoch 161, as Izmailov et al.
        (2018), arXiv:1803.05407, take them.
    """
    weights_MD, inner = spectral_sgd.step(
        gradient_MD, state.inner, weights_MD, hyper, now
    )
    return averages.after(weights_MD, inner, state, hyper, now)


def evaluated(weights_MD: Tensor, state: Averaged, hyper: Hyper) -> Tensor:
    """Return the average; the present weights before there is one."""
    return state.average


def rates(state: Averaged, hyper: Hyper) -> tuple[Tensor, Tensor]:
    """Return the learning rate and the momentum in force, (M, 1) each."""
    return spectral_sgd.rates(state.inner, hyper)
