"""Losses of single samples, for a batch of models."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

SampleLoss = Callable[[Tensor, Tensor], Tensor]


def _cross_entropy(outputs_MNC: Tensor, targets: Tensor) -> Tensor:
    logs_MNC = torch.log_softmax(outputs_MNC, dim=-1)
    targets_MN = targets.expand(outputs_MNC.shape[:-1])
    return -logs_MNC.gather(-1, targets_MN.unsqueeze(-1)).squeeze(-1)


def _squared(outputs_MNC: Tensor, targets: Tensor) -> Tensor:
    return (outputs_MNC - targets).square().sum(-1)


def _mean_squared(outputs_MNC: Tensor, targets: Tensor) -> Tensor:
    return (outputs_MNC - targets).square().mean(-1)


LOSSES = {"cross_entropy": _cross_entropy, "mse": _mean_squared, "sse": _squared}


def sample_losses(name: str) -> SampleLoss:
    """Return the loss of each sample as a function of outputs and targets.

    Args:
        name: `cross_entropy` of the softmax, `mse` (squared error, mean over outputs)
            or `sse` (squared error, sum over outputs).

    Returns:
        A function of outputs (M, N, C) and targets, labels (M or 1, N) or values
        (M or 1, N, C), that returns losses (M, N).
    """
    return LOSSES[name]
