"""Batches of data, and the losses of their samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import nll_loss
from torch.utils._pytree import tree_leaves, tree_map

from curvflow.errors import InputError

Batch = Any

# What a trial is made on: samples at most, and the part of a batch that they are.
TRIAL_SAMPLES, TRIAL_PART = 64, 4


def targets_of(batch: Batch) -> Any:
    """Return what the loss compares outputs with; of a dictionary without, all."""
    if isinstance(batch, Mapping):
        return batch.get("targets", batch)
    return batch[1]


def num_samples(batch: Batch) -> int:
    """Return the length of a batch's first tensor."""
    tensors = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor)]
    if not tensors:
        raise InputError(
            f"data: expected tensors in a batch, got {type(batch).__name__}. Pass "
            "(inputs, targets), a dictionary, a list of such, or a loader."
        )
    return len(tensors[0])


def plain(batch: Batch) -> Batch:
    """Return a batch whose mappings are dictionaries, as tokenizers have others."""
    if isinstance(batch, Mapping):
        return {name: plain(part) for name, part in batch.items()}
    if type(batch) in (tuple, list):
        return type(batch)(plain(part) for part in batch)
    return batch


def few_of(batch: Batch) -> Batch:
    """Return a few samples of a batch of inputs and targets to try something on.

    Others, whose samples cannot be separated, are returned whole.
    """
    if isinstance(batch, Mapping) and set(batch) != {"inputs", "targets"}:
        return batch
    leaves = tree_leaves(batch)
    if not all(isinstance(leaf, Tensor) and leaf.ndim for leaf in leaves):
        return batch
    if len({len(leaf) for leaf in leaves}) > 1:
        return batch
    return tree_map(lambda t: t[: _few(len(t))], batch)


def _few(samples: int) -> int:
    # Two at least: a batch norm has no variance of one.
    return max(2, min(TRIAL_SAMPLES, samples // TRIAL_PART))


SampleLoss = Callable[[Tensor, Tensor], Tensor]


def label_losses(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy of each label by itself.

    Args:
        outputs: logits, (M, N, C), or (M, N, T, C) of the tokens of a sample.
        targets: labels, (M or 1, N) or (M or 1, N, T).

    Returns:
        Losses, (M, N) or (M, N, T).
    """
    logs = torch.log_softmax(outputs, dim=-1)
    labels = targets.expand(outputs.shape[:-1])
    losses: Tensor = -logs.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return losses


def fused_label_losses(outputs: Tensor, targets: Tensor) -> Tensor:
    """Compute what `label_losses` does of one model, with first derivatives alone.

    The bits are the same, of the gradient too; one kernel stands for four.

    Args:
        outputs: logits, (1, N, C) or (1, N, T, C).
        targets: labels, (1, N) or (1, N, T).

    Returns:
        Losses, (1, N) or (1, N, T).
    """
    logs = torch.log_softmax(outputs, dim=-1).flatten(0, -2)
    losses: Tensor = nll_loss(logs, targets.flatten(), reduction="none")
    return losses.view(targets.shape)


def _cross_entropy(outputs_MNC: Tensor, targets: Tensor) -> Tensor:
    losses = label_losses(outputs_MNC, targets)
    return losses if losses.ndim == 2 else losses.flatten(2).mean(2)


def _squared(outputs_MNC: Tensor, targets: Tensor) -> Tensor:
    return (outputs_MNC - targets).square().sum(-1)


def _mean_squared(outputs_MNC: Tensor, targets: Tensor) -> Tensor:
    return (outputs_MNC - targets).square().mean(-1)


LOSSES = {"cross_entropy": _cross_entropy, "mse": _mean_squared, "sse": _squared}
