"""The eight rules of Jarvis (2021), Table 4.1, as one would write them by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


def products(gradients: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    """Return H w by a second backward pass."""
    parts = [(g * w.detach()).sum() for g, w in zip(gradients, weights, strict=True)]
    return list(torch.autograd.grad(torch.stack(parts).sum(), weights))


def metric(h: Tensor, w: Tensor, one: Any) -> Tensor:
    return one.rate * h.abs() * w.sign()


def decay(_: Tensor, w: Tensor, one: Any) -> Tensor:
    return one.decay_factor * one.rate * w


def selective(h: Tensor, w: Tensor, one: Any, rate: float) -> Tensor:
    return one.decay_factor * rate * w * (h.abs() <= one.omega * h.max())


def extra(one: Any, epoch: int) -> tuple[bool, Callable[[Tensor, Tensor], Tensor]]:
    """Return whether H w is needed in an epoch, and what is taken off beside lr g."""
    stopped = epoch >= getattr(one, "tau", 0)
    if one.rule == "metric":
        return True, lambda h, w: metric(h, w, one)
    if one.rule == "selective_l2":
        return True, lambda h, w: selective(h, w, one, one.rate)
    if one.rule == "l2_stopped_selective" and stopped:
        return True, lambda h, w: selective(h, w, one, one.selective_rate)
    if one.rule == "sgd" or (one.rule == "l2_stopped" and stopped):
        return False, lambda _, w: torch.zeros_like(w)
    return False, lambda _, w: decay(_, w, one)


def steps(
    module: nn.Module,
    criterion: Callable[[Tensor, Tensor], Tensor],
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    one: Any,
    epoch: int,
) -> None:
    """Take the steps of one epoch of one network.

    Args:
        module: the network.
        criterion: from outputs and targets to the loss.
        batches: inputs and targets of each step.
        one: specification of the rule.
        epoch: from 0.
    """
    weights = list(module.parameters())
    has_product, taken = extra(one, epoch)
    for x, y in batches:
        loss = criterion(module(x), y)
        gradients = torch.autograd.grad(loss, weights, create_graph=has_product)
        found = products(gradients, weights) if has_product else weights
        with torch.no_grad():
            for w, g, h in zip(weights, gradients, found, strict=True):
                w.sub_(one.lr * g + taken(h, w))
