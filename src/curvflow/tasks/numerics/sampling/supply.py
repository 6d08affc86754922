"""What chance gives chains, step by step.

Letters beside those of the package: C chains, T steps of a block, P steps of a page.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling.chances import block_length, draw_block
from curvflow.tasks.numerics.sampling.steps import Stream
from curvflow.tasks.numerics.streams import stream

# Normal numbers of a chain that are drawn by one call, in a page: so few that those of
# all chains are still in the processor's cache when the steps come to them.
PAGE = 2**12

# Entries of a chain's batches that are drawn together.
ENTRIES = 2**15


def page_length(num_parameters: int) -> int:
    """Return of how many steps the noise of a chain is drawn together."""
    return max(1, min(block_length(num_parameters), PAGE // num_parameters))


class Supply:
    """Noise, batches and coins of all chains.

    Each block of steps has streams of its own, so that a walk can go on from any step.
    What a step is given depends on the chain's stream, the step, D, N and the batch
    size alone: not on the other chains, on where the walk began, nor on the device.
    """

    def __init__(
        self,
        streams: Sequence[Stream],
        like_CD: Tensor,
        *,
        num_samples: int,
        batch_size: int | None,
        free: Tensor | None = None,
    ) -> None:
        """Take memory.

        Args:
            streams: one for each chain, C of them.
            like_CD: gives D, dtype and device.
            num_samples: N, of which batches are drawn.
            batch_size: samples per batch; None draws none.
            free: whether a parameter moves, (D,); the noise of others is 0.
        """
        self._streams, self._like, self._free = streams, like_CD, free
        self._num_samples, self._batch_size = num_samples, batch_size
        size = like_CD.shape[1]
        self._length = block_length(size)
        self._page = page_length(size)
        self._drawn_CPD = torch.empty(len(streams), self._page, size)
        # Normal numbers are drawn in single precision whatever the dtype, so that walks
        # of both precisions see the same noise.
        self._noise_CPD = torch.empty_like(
            self._drawn_CPD, dtype=like_CD.dtype, device=like_CD.device
        )
        if self._noise_CPD.dtype == torch.float32 and not like_CD.is_cuda:
            self._noise_CPD = self._drawn_CPD
        self._each = list(self._drawn_CPD)
        self._steps = self._noise_CPD.unbind(1)
        self._sources: list[torch.Generator] = []
        self._next = (-1, 0)
        self._shuffled = -1
        self._rows: Sequence[Tensor] = ()
        self._coins: Sequence[Tensor] = ()

    def noise(self, step: int) -> Tensor:
        """Return standard normal numbers, (C, D), in memory that is written over."""
        block, at = divmod(step, self._length)
        page, place = divmod(at, self._page)
        if self._next != (block, page + 1):
            self._turn_to(block, page)
        return self._steps[place]

    def _turn_to(self, block: int, page: int) -> None:
        """Draw a page, after those before it unless they were the last drawn."""
        if self._next != (block, page) or page == 0:
            self._sources = [
                stream(seed, f"chain {chain} noise {block}")
                for seed, chain in self._streams
            ]
            self._next = (block, 0)
        for _ in range(self._next[1], page + 1):
            for drawn_PD, source in zip(self._each, self._sources, strict=True):
                drawn_PD.normal_(generator=source)
        self._next = (block, page + 1)
        if self._noise_CPD is not self._drawn_CPD:
            self._noise_CPD.copy_(self._drawn_CPD)
        if self._free is not None:
            self._noise_CPD.mul_(self._free)

    def batch(self, step: int) -> tuple[Tensor | None, Tensor]:
        """Return the samples of batches, (C, B) or None, and coins, (C,)."""
        length = max(1, min(self._length, ENTRIES // (self._batch_size or 1)))
        block, place = divmod(step, length)
        if block != self._shuffled:
            self._shuffle(block, length)
        rows_CB = None if self._batch_size is None else self._rows[place]
        return rows_CB, self._coins[place]

    def _shuffle(self, block: int, length: int) -> None:
        chances = draw_block(
            block,
            self._streams,
            length,
            num_samples=self._num_samples,
            batch_size=self._batch_size,
            device=self._like.device,
        )
        self._shuffled, self._coins = block, chances.coins.unbind(1)
        if chances.rows is not None:
            self._rows = chances.rows.transpose(0, 1).contiguous().unbind(0)
