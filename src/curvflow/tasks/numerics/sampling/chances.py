"""Batches and coins of each chain at each step, in blocks of steps.

A block is drawn from a stream of its own, for each chain. What a step is given hence
depends on the chain's stream, the step, D, N and the batch size alone: not on the other
chains, on where the walk began or ends, nor on the device.

Letters beside those of the package: C chains, T steps of a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling.steps import Stream
from curvflow.tasks.numerics.streams import stream

LONGEST = 128
ENTRIES = 2**18


def block_length(num_parameters: int) -> int:
    """Return how many steps a block has: a chain's noise takes a megabyte or so."""
    return max(1, min(LONGEST, ENTRIES // num_parameters))


@dataclass(frozen=True)
class Chances:
    """What a block of steps is given beside its noise.

    Attributes:
        rows: the samples of the batches, (C, T, B), or None.
        coins: uniform between 0 and 1, (C, T).
    """

    rows: Tensor | None
    coins: Tensor


def draw_block(
    block: int,
    streams: Sequence[Stream],
    length: int,
    *,
    num_samples: int,
    batch_size: int | None,
    device: torch.device,
) -> Chances:
    """Draw what the steps of a block are given.

    Args:
        block: its number.
        streams: one for each chain, C of them.
        length: steps of a block, T.
        num_samples: N, of which batches are drawn.
        batch_size: samples per batch; None draws none.
        device: where the block is wanted.

    Returns:
        The block.
    """
    coins_CT = torch.empty(len(streams), length, dtype=torch.float64)
    rows_CTB = None
    if batch_size is not None:
        rows_CTB = torch.empty(len(streams), length, batch_size, dtype=torch.int64)
    for chain, (seed, number) in enumerate(streams):
        source = stream(seed, f"chain {number} block {block}")
        coins_CT[chain].uniform_(generator=source)
        if rows_CTB is not None:
            rows_CTB[chain].random_(0, num_samples, generator=source)
    return Chances(
        None if rows_CTB is None else rows_CTB.to(device), coins_CT.to(device)
    )


def noise_at_draw(draw: int, streams: Sequence[Stream], like_CD: Tensor) -> Tensor:
    """Draw the noise of a proposal made at a draw to measure acceptance, (C, D)."""
    noise_CD = torch.empty(like_CD.shape, dtype=torch.float32)
    for chain, (seed, number) in enumerate(streams):
        noise_CD[chain].normal_(generator=stream(seed, f"chain {number} draw {draw}"))
    return noise_CD.to(like_CD)
