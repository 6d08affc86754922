"""What is done to labels: noise, and one column per class."""

from __future__ import annotations

import numpy as np
import torch

from curvflow.schemas.nodes import Array
from curvflow.tasks.numerics.streams import stream


def noisy(labels: Array, num_classes: int, share: float, seed: int) -> Array:
    """Replace a share of the labels by another class each, drawn uniformly.

    A larger share keeps what a smaller one replaced.

    Args:
        labels: (N,), 0..C-1.
        num_classes: C, at least 2.
        share: of the labels, rounded to a whole number of them.
        seed: of the draw.

    Returns:
        The new labels.
    """
    generator = stream(seed, "label noise")
    order = torch.randperm(len(labels), generator=generator).numpy()
    steps = torch.randint(1, num_classes, (len(labels),), generator=generator).numpy()
    chosen = order[: round(share * len(labels))]
    found = labels.astype(np.int64)
    found[chosen] = (found[chosen] + steps[chosen]) % num_classes
    return found


def one_hot(labels: Array, num_classes: int) -> Array:
    """Write labels as one column of 0 and 1 per class, (N, C)."""
    return np.eye(num_classes)[labels.astype(np.int64)]
