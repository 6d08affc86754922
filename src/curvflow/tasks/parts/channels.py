"""Models side by side as channels of one image."""

from __future__ import annotations

import torch
from torch import Tensor


def merged(x: Tensor) -> Tensor:
    """Return (M, N, C, H, W) as (N, M C, H, W), a view of what `parted` returned."""
    return x.transpose(0, 1).flatten(1, 2)


def parted(x: Tensor, models: int) -> Tensor:
    """Return (N, M C, H, W) as (M, N, C, H, W), a view."""
    return torch.unflatten(x, 1, (models, -1)).transpose(0, 1)
