"""Random streams, one for each seed and purpose."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor


def stream(seed: int, purpose: str) -> torch.Generator:
    """Return a separate generator for a seed and a purpose.

    Draws are made on the CPU, so that they do not depend on the device, and for one
    member at a time, so that they do not depend on its siblings.

    Args:
        seed: the node's seed.
        purpose: of the draws, such as `init`; streams of two purposes are independent.

    Returns:
        A generator on the CPU.

    Examples:
        >>> from curvflow.tasks.numerics import stream
        >>> first, again = stream(0, "init"), stream(0, "init")
        >>> torch.rand(1, generator=first) == torch.rand(1, generator=again)
        tensor([True])
    """
    return torch.Generator().manual_seed(_number(f"{purpose}:{seed}"))


@lru_cache(maxsize=1024)
def _number(name: str) -> int:
    """Return what a generator of a name is seeded with."""
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def shuffled(seeds: Sequence[int], draw: int, num_samples: int) -> Tensor:
    """Shuffle the samples anew for each model and draw.

    Args:
        seeds: seed of each model.
        draw: number of the draw; each has a separate stream.
        num_samples: N.

    Returns:
        Numbers of samples, (M, N), on the CPU.
    """
    drawn = {
        seed: torch.randperm(num_samples, generator=stream(seed, f"batches:{draw}"))
        for seed in set(seeds)
    }
    return torch.stack([drawn[seed] for seed in seeds])
