"""What is in a batch of data: (inputs, targets), or a dictionary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
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


def few_of(batch: Batch) -> Batch:
    """Return a few samples of a batch (inputs, targets) to try something on.

    Others, whose parts cannot be told from their samples, are returned whole.
    """
    tensors = isinstance(batch, tuple | list) and all(
        isinstance(part, Tensor) for part in batch
    )
    return tree_map(lambda t: t[: _few(len(t))], batch) if tensors else batch


def _few(samples: int) -> int:
    # Two at least: a batch norm has no variance of one.
    return max(2, min(TRIAL_SAMPLES, samples // TRIAL_PART))
