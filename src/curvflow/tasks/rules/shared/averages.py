"""Averages of the weights that another rule passes through."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from curvflow.tasks.training.step_context import Hyper, Step


class Averaged(NamedTuple):
    """State of averaging, with that of the rule that steps.

    Attributes:
        inner: state of that rule.
        average: of the weights; as long as there are none in it, the result without.
        points: how many weights are in it, (M, 1).
        slow: weights of Lookahead, (M, D); None without.
    """

    inner: Any
    average: Tensor
    points: Tensor
    slow: Tensor | None


def begin(inner: object, weights_MD: Tensor, hyper: Hyper) -> Averaged:
    """Return the average before the first step.

    Args:
        inner: state of the rule that steps.
        weights_MD: first weights.
        hyper: its `rule` says whether there is Lookahead.

    Returns:
        The state.
    """
    slow = weights_MD if hyper.rule.lookahead else None
    return Averaged(inner, weights_MD, weights_MD.new_zeros(len(weights_MD), 1), slow)


def after(
    weights_MD: Tensor, inner: object, state: Averaged, hyper: Hyper, context: Step
) -> tuple[Tensor, Averaged]:
    """Take the weights that a step led to into the average, if they are due.

    Args:
        weights_MD: after the step.
        inner: state of the rule that stepped.
        state: before it.
        hyper: count_before (0 or 1), (M, 1); `rule` has start, every and lookahead.
        context: where training is.

    Returns:
        The weights to go on from, which are others only by Lookahead, and the state.
    """
    rule, average_MD, points_M1, slow_MD = hyper.rule, *state[1:]
    if _completed(context) < rule.start:
        if slow_MD is None:
            return weights_MD, Averaged(inner, weights_MD, points_M1, None)
        weights_MD, slow_MD = synchronised(
            weights_MD, slow_MD, context, k=rule.lookahead.k, alpha=rule.lookahead.alpha
        )
        return weights_MD, Averaged(inner, slow_MD, points_M1, slow_MD)
    if is_due(rule.every, context):
        points_M1 = points_M1 + 1
        share_M1 = 1 / (points_M1 + hyper["count_before"])
        average_MD = torch.lerp(average_MD, weights_MD, share_M1)
    else:
        has_any = points_M1 + hyper["count_before"] > 0
        average_MD = torch.where(has_any, average_MD, weights_MD)
    return weights_MD, Averaged(inner, average_MD, points_M1, slow_MD)


def synchronised(
    fast_MD: Tensor, slow_MD: Tensor, context: Step, *, k: int, alpha: float | Tensor
) -> tuple[Tensor, Tensor]:
    """Move slow weights towards fast ones, and these to them, after every k steps.

    Args:
        fast_MD: after the step.
        slow_MD: before it.
        context: where training is.
        k: steps between.
        alpha: share of the way.

    Returns:
        Fast and slow weights.
    """
    if (context.count + 1) % k:
        return fast_MD, slow_MD
    slow_MD = torch.lerp(slow_MD, fast_MD, alpha)
    return slow_MD, slow_MD


def is_due(every: str | int, context: Step) -> bool:
    """Return whether the weights after this step are among those averaged.

    Args:
        every: `epoch`, or a number of steps, counted from the first of training.
        context: where training is.
    """
    if every == "epoch":
        return context.ends_epoch
    return (context.count + 1) % int(every) == 0


def _completed(context: Step) -> int:
    return context.epoch + context.ends_epoch
