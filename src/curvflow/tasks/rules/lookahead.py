"""Lookahead around another rule, for stacked models."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.rules import functions_of
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


def init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> State:
    """Return the inner rule's state and the slow weights before the first step."""
    inner = hyper.within("inner")
    return State(
        functions_of(hyper.rule.inner).init(weights_MD, inner, problem), weights_MD
    )


def step(
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


def evaluated(weights_MD: Tensor, state: State, hyper: Hyper) -> Tensor:
    """Return the slow weights."""
    return state.slow
