"""Arithmetic for one thread, as much as asked for."""

from __future__ import annotations

# Side of the matrices that are multiplied: they stay in a core's cache.
SIDE = 96


def burnt(rounds: int) -> float:
    """Multiply matrices so many times."""
    import torch  # planning needs no torch

    x = torch.linspace(-1, 1, SIDE * SIDE, dtype=torch.float64).reshape(SIDE, SIDE)
    w = torch.flip(x, (0,)) / SIDE
    for _ in range(rounds):
        x = torch.tanh(x @ w + x)
    return float(x.sum())
