"""What chance gives each chain at each step, in blocks of steps.

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


def empty_noise(like_CD: Tensor) -> Tensor:
    """Return memory for the noise of a block, (C, T, D), on the CPU."""
    num_chains, num_parameters = like_CD.shape
    size = block_length(num_parameters)
    return torch.empty(num_chains, size, num_parameters, dtype=torch.float32)


@dataclass(frozen=True)
class Chances:
    """What a block of steps is given.

    Attributes:
        noise: standard normal, 0 where a parameter does not move, (C, T, D).
        rows: the samples of the batches, (C, T, B), or None.
        coins: uniform between 0 and 1, (C, T).
    """

    noise: Tensor
    rows: Tensor | None
    coins: Tensor


def draw_block(
    block: int,
    streams: Sequence[Stream],
    like_CD: Tensor,
    *,
    num_samples: int,
    batch_size: int | None,
    into_CTD: Tensor | None = None,
) -> Chances:
    """Draw what the steps of a block are given.

    Normal numbers are drawn in single precision whatever the dtype, so that walks of
    both precisions see the same noise.

    Args:
        block: its number.
        streams: one for each chain, C of them.
        like_CD: gives D, dtype and device.
        num_samples: N, of which batches are drawn.
        batch_size: samples per batch; None draws none.
        into_CTD: an `empty_noise` to draw into: memory that is new costs page faults.

    Returns:
        The block, on the device and of the dtype of `like_CD`.
    """
    noise_CTD = empty_noise(like_CD) if into_CTD is None else into_CTD
    size = noise_CTD.shape[1]
    coins_CT = torch.empty(len(streams), size, dtype=torch.float64)
    rows_CTB = None
    if batch_size is not None:
        rows_CTB = torch.empty(len(streams), size, batch_size, dtype=torch.int64)
    for chain, (seed, number) in enumerate(streams):
        source = stream(seed, f"chain {number} block {block}")
        coins_CT[chain].uniform_(generator=source)
        noise_CTD[chain].normal_(generator=source)
        if rows_CTB is not None:
            rows_CTB[chain].random_(0, num_samples, generator=source)
    device = like_CD.device
    return Chances(
        noise_CTD.to(device, like_CD.dtype),
        None if rows_CTB is None else rows_CTB.to(device),
        coins_CT.to(device),
    )


def noise_at_draw(draw: int, streams: Sequence[Stream], like_CD: Tensor) -> Tensor:
    """Draw the noise of a proposal made at a draw to measure acceptance, (C, D)."""
    noise_CD = torch.empty(like_CD.shape, dtype=torch.float32)
    for chain, (seed, number) in enumerate(streams):
        noise_CD[chain].normal_(generator=stream(seed, f"chain {number} draw {draw}"))
    return noise_CD.to(like_CD)
