"""Rules around another rule, for stacked models."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.rules import Functions, functions_of
from curvflow.tasks.rules.shared.averages import synchronised
from curvflow.tasks.training.step_context import Hyper, Step


class State(NamedTuple):
    """State of Lookahead.

    Attributes:
        inner: state of the rule that steps.
        slow: weights that follow it, (M, D).
    """

    inner: Any
    slow: Tensor


def inner_init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> Any:
    """Return the inner rule's state before the first step."""
    inner = hyper.within("inner")
    return functions_of(hyper.rule.inner).init(weights_MD, inner, problem)


def lookahead_init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> State:
    """Return the inner rule's state and the slow weights before the first step."""
    return State(inner_init(weights_MD, hyper, problem), weights_MD)


def lookahead_step(
    gradient_MD: Tensor, state: State, weights_MD: Tensor, hyper: Hyper, context: Step
) -> tuple[Tensor, State]:
    """Take one step of the inner rule; after every k: s <- s + alpha (w - s), w <- s.

    Args:
        gradient_MD: gradients of the loss.
        state: inner state and slow weights s.
        weights_MD: fast weights w.
        hyper: alpha, (M, 1), and those of the inner rule.
        context: where training is.

    Returns:
        The new weights and state.

    Reference:
        Zhang et al. (2019), arXiv:1907.08610; the inner state is kept when the fast
        weights are set back.
    """
    fast_MD, inner = functions_of(hyper.rule.inner).step(
        gradient_MD, state.inner, weights_MD, hyper.within("inner"), context
    )
    fast_MD, slow_MD = synchronised(
        fast_MD, state.slow, context, k=hyper.rule.k, alpha=hyper["alpha"]
    )
    return fast_MD, State(inner, slow_MD)


def slow_weights(weights_MD: Tensor, state: State, hyper: Hyper) -> Tensor:
    """Return the slow weights of Lookahead, which are its result."""
    return state.slow


class Fading(NamedTuple):
    """State of a fading mean.

    Attributes:
        inner: state of the rule that steps.
        mean: of its weights, (M, D).
    """

    inner: Any
    mean: Tensor


def ema_init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> Fading:
    """Return the inner rule's state and the weights before the first step."""
    return Fading(inner_init(weights_MD, hyper, problem), weights_MD)


def ema_step(
    gradient_MD: Tensor, state: Fading, weights_MD: Tensor, hyper: Hyper, context: Step
) -> tuple[Tensor, Fading]:
    """Take one step of the inner rule, then e <- decay e + (1 - decay) w.

    Args:
        gradient_MD: gradients of the loss.
        state: inner state and mean e.
        weights_MD: weights w.
        hyper: decay, (M, 1), and those of the inner rule.
        context: after the first step e is w.

    Returns:
        The new weights and state.

    Reference:
        torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn.
    """
    new_MD, inner = functions_of(hyper.rule.inner).step(
        gradient_MD, state.inner, weights_MD, hyper.within("inner"), context
    )
    mean_MD = (
        torch.lerp(new_MD, state.mean, hyper["decay"]) if context.count else new_MD
    )
    return new_MD, Fading(inner, mean_MD)


def fading_mean(weights_MD: Tensor, state: Fading, hyper: Hyper) -> Tensor:
    """Return the mean, which is the result."""
    return state.mean


def sam_step(
    gradient_MD: Tensor, state: Any, weights_MD: Tensor, hyper: Hyper, context: Step
) -> tuple[Tensor, Any]:
    """Take one step of the inner rule from w, by the gradient at w + e.

    Args:
        gradient_MD: gradients g of the loss at w.
        state: that of the inner rule.
        weights_MD: weights w.
        hyper: rho, adaptive (0 or 1) and eta, each (M, 1), and those of the inner rule.
        context: for the second gradient.

    Returns:
        The new weights and state.

    Reference:
        Foret et al. (2021), arXiv:2010.01412, Algorithm 1; Kwon et al. (2021),
        arXiv:2102.11600, Algorithm 1. The inner rule's decay is taken at w.
    """
    there_MD = weights_MD + _ascent(gradient_MD, weights_MD, hyper)
    second_MD = context.gradient_at(there_MD)
    stepped: tuple[Tensor, Any] = functions_of(hyper.rule.inner).step(
        second_MD, state, weights_MD, hyper.within("inner"), context
    )
    return stepped


def _ascent(gradient_MD: Tensor, weights_MD: Tensor, hyper: Hyper) -> Tensor:
    """Return e = rho T^2 g / |T g|, T = |w| + eta if adaptive, else 1; 0 at g = 0."""
    sizes_MD = weights_MD.abs() + hyper["eta"]
    sizes_MD = torch.where(hyper["adaptive"] > 0, sizes_MD, 1.0)
    scaled_MD = sizes_MD * gradient_MD
    length_M1 = torch.linalg.vector_norm(scaled_MD, dim=1, keepdim=True)
    share_M1 = hyper["rho"] / torch.where(length_M1 > 0, length_M1, 1.0)
    return share_M1 * sizes_MD * scaled_MD


RULES = {
    "ema": Functions(init=ema_init, step=ema_step, evaluated=fading_mean),
    "lookahead": Functions(
        init=lookahead_init, step=lookahead_step, evaluated=slow_weights
    ),
    "sam": Functions(init=inner_init, step=sam_step),
}
