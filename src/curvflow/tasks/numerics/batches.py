"""What is in a batch of data: (inputs, targets), or a dictionary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from curvflow.errors import InputError

Batch = Any


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
