"""Random order of samples."""

from __future__ import annotations

import torch

from curvflow.schemas.nodes import Array
from curvflow.tasks.numerics.streams import stream


def shuffled(count: int, seed: int) -> Array:
    """Return a permutation of `count` samples, from the seed's stream for splits."""
    return torch.randperm(count, generator=stream(seed, "split")).numpy()
