"""Averages of the weights that other rules step through, for stacked models.

Each steps as another rule does; its result is an average of the weights, which never
feeds back into the steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.rules import Functions, sgd, spectral_sgd
from curvflow.tasks.rules.adaptive import adamw
from curvflow.tasks.rules.shared import averages, moments
from curvflow.tasks.rules.shared.averages import Averaged, is_due
from curvflow.tasks.rules.shared.moments import Moments
from curvflow.tasks.training.state import leaves, with_leaves
from curvflow.tasks.training.step_context import Hyper, Step

NEVER = -1.0


def averaged(
    init: Callable[..., Any], step: Callable[..., Any], **further: Any
) -> Functions:
    """Return the functions of a rule that averages the weights of another.

    Args:
        init: begins the state of the other.
        step: steps it.
        further: functions of the other that look at its state.

    Returns:
        The functions; the weights stepped from do not depend on the average.
    """

    def begin(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> Averaged:
        return averages.begin(init(weights_MD, hyper, problem), weights_MD, hyper)

    def step_and_average(
        gradient_MD: Tensor,
        state: Averaged,
        weights_MD: Tensor,
        hyper: Hyper,
        context: Step,
    ) -> tuple[Tensor, Averaged]:
        weights_MD, inner = step(gradient_MD, state.inner, weights_MD, hyper, context)
        return averages.after(weights_MD, inner, state, hyper, context)

    return Functions(init=begin, step=step_and_average, evaluated=evaluated, **further)


class AutoState(NamedTuple):
    """Means, average, and what the validation loss has led to.

    Attributes:
        moments: of AdamW.
        average: of the weights; the present ones while there are none in it, (M, D).
        averaged: how many weights, (M, 1).
        best: lowest validation loss, (M, 1).
        waited: epochs since then, or since averaging began, (M, 1).
        watched: epochs completed until the end, (M, 1).
        began: epochs completed when averaging began; -1 if it has not, (M, 1).
        ended: epochs completed when all came to an end; -1 if it has not, (M, 1).
    """

    moments: Moments
    average: Tensor
    averaged: Tensor
    best: Tensor
    waited: Tensor
    watched: Tensor
    began: Tensor
    ended: Tensor


def auto_init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> AutoState:
    """Return means and average before the first step."""
    moments = adamw.init(weights_MD, hyper, problem)
    zero_M1 = weights_MD.new_zeros(len(weights_MD), 1)
    best_M1, never_M1 = zero_M1 + torch.inf, zero_M1 + NEVER
    return AutoState(
        moments, weights_MD, zero_M1, best_M1, zero_M1, zero_M1, never_M1, never_M1
    )


def auto_step(
    gradient_MD: Tensor,
    state: AutoState,
    weights_MD: Tensor,
    hyper: Hyper,
    context: Step,
) -> tuple[Tensor, AutoState]:
    """Take one step of `adamw`, and average what is due; at the end take none.

    Args:
        gradient_MD: gradients g of the loss.
        state: means, average, and where the model is between beginning and end.
        weights_MD: weights w.
        hyper: those of `adamw`, and count_before, each (M, 1).
        context: where training is.

    Returns:
        The new weights and state; where averaging has ended, the same as before.

    Reference:
        Granziol (2020), section 7, GadamAuto.
    """
    new_MD, moments = adamw.step(gradient_MD, state.moments, weights_MD, hyper, context)
    is_averaging = state.began > NEVER
    average_MD, averaged_M1 = state.average, state.averaged
    if is_due(hyper.rule.every, context):
        averaged_M1 = averaged_M1 + is_averaging
        share_M1 = 1 / (averaged_M1 + hyper["count_before"]).clamp(min=1)
        average_MD = torch.lerp(average_MD, new_MD, share_M1)
    has_any = is_averaging & (averaged_M1 + hyper["count_before"] > 0)
    average_MD = torch.where(has_any, average_MD, new_MD)
    after = state._replace(moments=moments, average=average_MD, averaged=averaged_M1)
    has_ended = state.ended > NEVER
    return torch.where(has_ended, weights_MD, new_MD), _kept(has_ended, state, after)


def auto_watch(
    weights_MD: Tensor, state: AutoState, validation_loss_M: Tensor, hyper: Hyper
) -> AutoState:
    """Begin or end averaging after `patience` epochs without a lower loss.

    Args:
        weights_MD: not used.
        state: up to the epoch just completed.
        validation_loss_M: of the result, which is the average once there is one.
        hyper: its `rule` has the patience.

    Returns:
        The new state.
    """
    loss_M1 = validation_loss_M.to(state.best)[:, None]
    is_better = loss_M1 < state.best
    watched_M1 = state.watched + 1
    waited_M1 = torch.where(is_better, 0, state.waited + 1)
    is_over = waited_M1 >= hyper.rule.patience
    is_averaging = state.began > NEVER
    after = state._replace(
        best=torch.where(is_better, loss_M1, state.best),
        waited=torch.where(is_over, 0, waited_M1),
        watched=watched_M1,
        began=torch.where(is_over & ~is_averaging, watched_M1, state.began),
        ended=torch.where(is_over & is_averaging, watched_M1, state.ended),
    )
    return _kept(state.ended > NEVER, state, after)


def evaluated(weights_MD: Tensor, state: Averaged | AutoState, hyper: Hyper) -> Tensor:
    """Return the average; the present weights before there is one."""
    return state.average


def gadamx_step(
    gradient_MD: Tensor, state: Moments, weights_MD: Tensor, hyper: Hyper, context: Step
) -> tuple[Tensor, Moments]:
    """Take one step of `padam` with decoupled decay.

    Args:
        gradient_MD: gradients g of the loss.
        state: running means.
        weights_MD: weights w.
        hyper: lr, beta1, beta2, eps, p, amsgrad and weight_decay, each (M, 1).
        context: not used.

    Returns:
        The new weights and means.

    Reference:
        Granziol (2020), Algorithm 9; bias is corrected outside the recursion, amsgrad
        takes the largest v before that, and count_before counts the last point as the
        algorithm does.
    """
    inner = moments.after(gradient_MD, state, hyper)
    decay_M1 = hyper["weight_decay"]
    return moments.partly_descended(weights_MD, inner, hyper, decay_M1), inner


def spectral_rates(state: Averaged, hyper: Hyper) -> tuple[Tensor, Tensor]:
    """Return the learning rate and the momentum in force, (M, 1) each."""
    return spectral_sgd.rates(state.inner, hyper)


def _kept(has_ended_M1: Tensor, before: AutoState, after: AutoState) -> AutoState:
    """Return the state before where a model has come to its end, else that after."""
    pairs = zip(leaves(before), leaves(after), strict=True)
    new = (
        None if old is None or other is None else torch.where(has_ended_M1, old, other)
        for old, other in pairs
    )
    return cast("AutoState", with_leaves(before, new))


# Izmailov et al. (2018), arXiv:1803.05407; Granziol (2020): Algorithm 9, p = 1/2, for
# gadam, where bias is corrected outside the recursion and count_before counts the last
# point as printed, and section 4.3.2 for spectral_swa, averaged from epoch 161 there.
RULES = {
    "swa": averaged(sgd.init, sgd.step),
    "gadam": averaged(adamw.init, adamw.step),
    "gadamx": averaged(adamw.init, gadamx_step),
    "gadam_auto": Functions(
        init=auto_init, step=auto_step, evaluated=evaluated, watch=auto_watch
    ),
    "spectral_swa": averaged(
        spectral_sgd.init, spectral_sgd.step, rates=spectral_rates
    ),
}
