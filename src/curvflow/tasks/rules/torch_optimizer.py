"""Optimisers of PyTorch and of others, for stacked models."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from curvflow.schemas.rules._base import OF_TRAINING
from curvflow.schemas.rules.torch_optimizer import TorchOptimizer
from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.rules.shared.torch_adapter import Adapter, State, adapter
from curvflow.tasks.training.step_context import Hyper, Step


def init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> State:
    """Return a state of the form that steps have; the first step does not use it."""
    _, state = _adapter(hyper, problem).step(
        torch.ones_like(weights_MD), None, weights_MD, hyper.rule.lr
    )
    return tuple(None if leaf is None else torch.zeros_like(leaf) for leaf in state)


def step(
    gradient_MD: Tensor, state: State, weights_MD: Tensor, hyper: Hyper, context: Step
) -> tuple[Tensor, State]:
    """Take the optimiser's step: w <- what it makes of w, g and its state.

    Args:
        gradient_MD: gradients g of the loss.
        state: the optimiser's, which is made anew and given it for this step.
        weights_MD: weights w.
        hyper: lr, equal for all models, (M, 1).
        context: at the first step the optimiser begins by itself.

    Returns:
        The new weights and state.
    """
    return _adapter(hyper, context.problem).step(
        gradient_MD, state if context.count else None, weights_MD, _rate(hyper["lr"])
    )


# Whoever asks for a number waits for the device, and this one is the same all epoch: a
# tensor is known by its identity, and each epoch with another rate has its own.
@lru_cache(maxsize=16)
def _rate(lr_M1: Tensor) -> float:
    return float(lr_M1[0])


def notice(hyper: Hyper, problem: Problem) -> str:
    """Say in a line if each model needs a separate optimiser, which takes longer."""
    rule: TorchOptimizer = hyper.rule
    if _adapter(hyper, problem).is_stacked:
        return ""
    return (
        f"{rule.optimizer} steps stacked models otherwise than each alone, so each has "
        "an optimiser of its own"
    )


def _adapter(hyper: Hyper, problem: Problem) -> Adapter:
    text = hyper.rule.model_dump_json(exclude=set(OF_TRAINING))
    return adapter(text, problem.network.layout)
