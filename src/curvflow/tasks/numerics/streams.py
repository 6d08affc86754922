"""Random streams, one for each seed and purpose."""

from __future__ import annotations

import hashlib

import torch


def stream(seed: int, purpose: str) -> torch.Generator:
    """Return a generator of its own for a seed and a purpose.

    Draws are made on the CPU, so that they do not depend on the device, and for one
    member at a time, so that they do not depend on its siblings.

    Args:
        seed: the node's seed.
        purpose: what is drawn, such as `init`; streams of two purposes are independent.

    Returns:
        A generator on the CPU.

    Examples:
        >>> from curvflow.tasks.numerics import stream
        >>> first, again = stream(0, "init"), stream(0, "init")
        >>> torch.rand(1, generator=first) == torch.rand(1, generator=again)
        tensor([True])
    """
    digest = hashlib.sha256(f"{purpose}:{seed}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
