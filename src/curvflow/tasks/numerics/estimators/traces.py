"""Random vectors, and means of draws with their standard errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from curvflow.tasks.numerics.streams import stream


@dataclass(frozen=True)
class Estimate:
    """A quantity measured by independent draws along the last dimension.

    Attributes:
        draws: shape (..., S).
        mean: shape (...).
        sem: standard error of the mean, shape (...).
        count: S.
        freedom: degrees of freedom of the standard error, shape (...).
    """

    draws: Tensor
    mean: Tensor
    sem: Tensor
    count: int
    freedom: Tensor


def estimate(draws: Tensor) -> Estimate:
    """Return mean and standard error of draws along the last dimension.

    Args:
        draws: shape (..., S); of a single draw the error is NaN.

    Examples:
        >>> from curvflow.tasks.numerics import estimate
        >>> found = estimate(torch.tensor([1.0, 2.0, 3.0]).double())
        >>> found.mean.item(), round(found.sem.item(), 4)
        (2.0, 0.5774)
    """
    count, mean = draws.shape[-1], draws.mean(-1)
    sem = torch.full_like(mean, torch.nan)
    if count > 1:
        sem = draws.std(dim=-1, correction=1) / math.sqrt(count)
    return Estimate(draws, mean, sem, count, torch.full_like(mean, count - 1))


# Entries that are drawn before they are written into vectors; more take more memory.
DRAWN = 1 << 20


def random_vectors(
    seeds: Sequence[int],
    size: int,
    rows: range,
    distribution: str,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """Draw vectors of independent entries with mean 0 and variance 1.

    Each vector has a separate stream, so that neither its siblings nor the order
    and the size of blocks change it. Equal seeds draw equal vectors.

    Args:
        seeds: seed of each model, M of them.
        size: entries per vector, D.
        rows: which vectors of each stream, S of them.
        distribution: `rademacher` or `gaussian`.
        dtype: of the vectors, which are the same in each but for rounding.

    Returns:
        Columns (M, D, S), on the CPU.

    Examples:
        >>> signs = random_vectors([0], 4, range(2), "rademacher")
        >>> signs.shape, signs.abs().unique().tolist()
        (torch.Size([1, 4, 2]), [1.0])
    """
    drawn = {seed: _draw(seed, size, rows, distribution, dtype) for seed in set(seeds)}
    if len(drawn) == 1:
        return drawn[seeds[0]].expand(len(seeds), -1, -1)
    # Vectors lie whole in memory, as products take them.
    return torch.stack([drawn[seed].T for seed in seeds]).mT


def _draw(
    seed: int, size: int, rows: range, distribution: str, dtype: torch.dtype
) -> Tensor:
    vectors = torch.empty(len(rows), size, dtype=dtype)
    step = max(1, DRAWN // size)
    for first in range(0, len(rows), step):
        span = slice(first, first + step)
        streams = [stream(seed, f"probe:{distribution}:{row}") for row in rows[span]]
        draw = _normals if distribution == "gaussian" else _signs
        vectors[span] = draw(size, streams)
    return vectors.T


def _normals(size: int, streams: Sequence[torch.Generator]) -> Tensor:
    # Other numbers are drawn in another precision.
    drawn = torch.empty(len(streams), size, dtype=torch.float64)
    for vector, generator in zip(drawn, streams, strict=True):
        vector.normal_(generator=generator)
    return drawn


def _signs(size: int, streams: Sequence[torch.Generator]) -> Tensor:
    """Draw -1 or 1, eight by one number; a number each would cost half a product."""
    octets = torch.empty(len(streams), -(-size // 8), dtype=torch.uint8)
    for row, generator in zip(octets, streams, strict=True):
        row.random_(generator=generator)
    bits = torch.from_numpy(np.unpackbits(octets.numpy(), axis=1, count=size))
    return bits.view(torch.int8).mul_(2).sub_(1)
