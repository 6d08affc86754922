"""Averages of AdamW's weights that begin and end by themselves, for stacked models."""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor

from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.rules import adamw
from curvflow.tasks.rules.shared.averages import is_due
from curvflow.tasks.rules.shared.moments import Moments
from curvflow.tasks.training.state import leaves, with_leaves
from curvflow.tasks.training.step_context import Hyper, Step

NEVER = -1.0


class State(NamedTuple):
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


def init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> State:
    """Return means and average before the first step."""
    moments = adamw.init(weights_MD, hyper, problem)
    zero_M1 = weights_MD.new_zeros(len(weights_MD), 1)
    best_M1, never_M1 = zero_M1 + torch.inf, zero_M1 + NEVER
    return State(
        moments, weights_MD, zero_M1, best_M1, zero_M1, zero_M1, never_M1, never_M1
    )


def step(
    gradient_MD: Tensor, state: State, weights_MD: Tensor, hyper: Hyper, now: Step
) -> tuple[Tensor, State]:
    """Take one step of `adamw`, and average what is due; at the end take none.

    Args:
        gradient_MD: gradients g of the loss.
        state: means, average, and where the model is between beginning and end.
        weights_MD: weights w.
        hyper: those of `adamw`, and count_before, each (M, 1).
        now: where training is.

    Returns:
        The new weights and state; where averaging has ended, the same as before.

    Reference:
        Granziol (2020), section 7, GadamAuto.
    """
    new_MD, moments = adamw.step(gradient_MD, state.moments, weights_MD, hyper, now)
    is_averaging = state.began > NEVER
    average_MD, averaged_M1 = state.average, state.averaged
    if is_due(hyper.rule.every, now):
        averaged_M1 = averaged_M1 + is_averaging
        share_M1 = 1 / (averaged_M1 + hyper["count_before"]).clamp(min=1)
        average_MD = torch.lerp(average_MD, new_MD, share_M1)
    has_any = is_averaging & (averaged_M1 + hyper["count_before"] > 0)
    average_MD = torch.where(has_any, average_MD, new_MD)
    after = state._replace(moments=moments, average=average_MD, averaged=averaged_M1)
    has_ended = state.ended > NEVER
    return torch.where(has_ended, weights_MD, new_MD), _kept(has_ended, state, after)


def watch(
    weights_MD: Tensor, state: State, validation_loss_M: Tensor, hyper: Hyper
) -> State:
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


def evaluated(weights_MD: Tensor, state: State, hyper: Hyper) -> Tensor:
    """Return the average; the present weights before there is one."""
    return state.average


def _kept(has_ended_M1: Tensor, before: State, after: State) -> State:
    """Return the state before where a model has come to its end, else that after."""
    pairs = zip(leaves(before), leaves(after), strict=True)
    new = (
        None if old is None or now is None else torch.where(has_ended_M1, old, now)
        for old, now in pairs
    )
    return cast("State", with_leaves(before, new))
