"""Averages of the weights of stochastic gradient descent, for stacked models."""

from __future__ import annotations

from torch import Tensor

from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.rules import sgd
from curvflow.tasks.rules.shared import averages
from curvflow.tasks.rules.shared.averages import Averaged
from curvflow.tasks.training.step_context import Hyper, Step


def init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> Averaged:
    """Return velocities and average before the first step."""
    return averages.begin(sgd.init(weights_MD, hyper, problem), weights_MD, hyper)


def step(
    gradient_MD: Tensor, state: Averaged, weights_MD: Tensor, hyper: Hyper, now: Step
) -> tuple[Tensor, Averaged]:
    """Take one step of `sgd`, and average the weights that are due.

    Args:
        gradient_MD: gradients g of the loss.
        state: velocities and average.
        weights_MD: weights w.
        hyper: those of `sgd`, and count_before, each (M, 1).
        now: where training is.

    Returns:
        The new weights, which do not depend on the average, and the state.

    Reference:
        Izmailov et al. (2018), arXiv:1803.05407.
    """
    weights_MD, inner = sgd.step(gradient_MD, state.inner, weights_MD, hyper, now)
    return averages.after(weights_MD, inner, state, hyper, now)


def evaluated(weights_MD: Tensor, state: Averaged, hyper: Hyper) -> Tensor:
    """Return the average; the present weights before there is one."""
    return state.average
