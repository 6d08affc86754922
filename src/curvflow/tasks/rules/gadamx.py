"""Averages of the weights of partially adaptive AdamW, for stacked models."""

from __future__ import annotations

from torch import Tensor

from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.rules.shared import averages, moments
from curvflow.tasks.rules.shared.averages import Averaged
from curvflow.tasks.training.step_context import Hyper, Step


def init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> Averaged:
    """Return means and average before the first step."""
    return averages.begin(moments.begin(weights_MD, hyper), weights_MD, hyper)


def step(
    gradient_MD: Tensor, state: Averaged, weights_MD: Tensor, hyper: Hyper, now: Step
) -> tuple[Tensor, Averaged]:
    """Take one step of `padam` with decoupled decay, and average what is due.

    Args:
        gradient_MD: gradients g of the loss.
        state: means and average.
        weights_MD: weights w.
        hyper: lr, beta1, beta2, eps, p, amsgrad, weight_decay and count_before, each
            (M, 1).
        now: where training is.

    Returns:
        The new weights, which do not depend on the average, and the state.

    Reference:
        Granziol (2020), Algorithm 9; bias is corrected outside the recursion, amsgrad
        takes the largest v before that, and count_before counts the last point as the
        algorithm does.
    """
    inner = moments.after(gradient_MD, state.inner, hyper)
    weights_MD = moments.partly_descended(
        weights_MD, inner, hyper, hyper["weight_decay"]
    )
    return averages.after(weights_MD, inner, state, hyper, now)


def evaluated(weights_MD: Tensor, state: Averaged, hyper: Hyper) -> Tensor:
    """Return the average; the present weights before there is one."""
    return state.average
