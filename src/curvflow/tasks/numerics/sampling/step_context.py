"""Temperature, position and random numbers that a sampler is given at a step.

Each block of steps of each chain has a random stream, so that sampling can resume at
any step. The random numbers of a step depend only on the chain's stream, the step, D, N
and the batch size: not on the other chains, on where the run began or ends, nor on the
device.

Letters in addition to those of the package: C chains, T steps of a block, P steps of a
page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling.posteriors import Posterior, Steps, Stream
from curvflow.tasks.numerics.streams import stream

LONGEST = 128
ENTRIES = 2**18


def block_length(num_parameters: int) -> int:
    """Return how many steps a block has: a chain's noise takes a megabyte or so."""
    return max(1, min(LONGEST, ENTRIES // num_parameters))


@dataclass(frozen=True)
class BlockDraws:
    """Batches and acceptance draws of a block of steps.

    Attributes:
        rows: the samples of the batches, (C, T, B), or None.
        acceptance: uniform between 0 and 1, (C, T).
    """

    rows: Tensor | None
    acceptance: Tensor


def draw_block(
    block: int,
    streams: Sequence[Stream],
    length: int,
    *,
    num_samples: int,
    batch_size: int | None,
    device: torch.device,
) -> BlockDraws:
    """Draw the batches and acceptance draws of a block of steps.

    Args:
        block: its number.
        streams: one for each chain, C of them.
        length: steps of a block, T.
        num_samples: N, of which batches are drawn.
        batch_size: samples per batch; None draws none.
        device: of the result.

    Returns:
        The block.
    """
    acceptance_CT = torch.empty(len(streams), length, dtype=torch.float64)
    rows_CTB = None
    if batch_size is not None:
        rows_CTB = torch.empty(len(streams), length, batch_size, dtype=torch.int64)
    for chain, (seed, number) in enumerate(streams):
        source = stream(seed, f"chain {number} block {block}")
        acceptance_CT[chain].uniform_(generator=source)
        if rows_CTB is not None:
            rows_CTB[chain].random_(0, num_samples, generator=source)
    return BlockDraws(
        None if rows_CTB is None else rows_CTB.to(device), acceptance_CT.to(device)
    )


def noise_at_start(streams: Sequence[Stream], like_CD: Tensor) -> Tensor:
    """Draw where every second chain about a target starts, 0 of the others, (C, D)."""
    noise_CD = torch.zeros(like_CD.shape, dtype=torch.float32)
    for chain, (seed, number) in enumerate(streams):
        if number % 2 == 1:
            noise_CD[chain].normal_(generator=stream(seed, f"chain {number} start"))
    return noise_CD.to(like_CD)


def noise_at_draw(draw: int, streams: Sequence[Stream], like_CD: Tensor) -> Tensor:
    """Draw the noise of a proposal made at a draw to measure acceptance, (C, D)."""
    noise_CD = torch.empty(like_CD.shape, dtype=torch.float32)
    for chain, (seed, number) in enumerate(streams):
        noise_CD[chain].normal_(generator=stream(seed, f"chain {number} draw {draw}"))
    return noise_CD.to(like_CD)


# Normal numbers of a chain that one call draws, in a page: so few that those of all
# chains are still in the processor's cache when the steps use them.
PAGE = 2**12

# Entries of a chain's batches that are drawn together.
INDEX_ENTRIES = 2**15


def page_length(num_parameters: int) -> int:
    """Return the number of steps whose noise one call draws for a chain."""
    return max(1, min(block_length(num_parameters), PAGE // num_parameters))


class RandomNumbers:
    """Noise, batches and acceptance draws of all chains, step by step."""

    def __init__(
        self,
        streams: Sequence[Stream],
        like_CD: Tensor,
        *,
        num_samples: int,
        batch_size: int | None,
        free: Tensor | None = None,
    ) -> None:
        """Allocate memory; nothing is drawn yet.

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
        # Normal numbers are drawn in single precision whatever the dtype: the noise is
        # then the same in both precisions.
        self._noise_CPD = torch.empty_like(
            self._drawn_CPD, dtype=like_CD.dtype, device=like_CD.device
        )
        if self._noise_CPD.dtype == torch.float32 and like_CD.device.type == "cpu":
            self._noise_CPD = self._drawn_CPD
        self._each = list(self._drawn_CPD)
        self._steps = self._noise_CPD.unbind(1)
        self._sources: list[torch.Generator] = []
        self._next = (-1, 0)
        self._block = -1
        self._rows: Sequence[Tensor] = ()
        self._acceptance: Sequence[Tensor] = ()

    def noise(self, step: int) -> Tensor:
        """Return standard normal numbers, (C, D), in memory that is written over."""
        block, at = divmod(step, self._length)
        page, place = divmod(at, self._page)
        if self._next != (block, page + 1):
            self._draw_page(block, page)
        return self._steps[place]

    def _draw_page(self, block: int, page: int) -> None:
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
        """Return samples of batches, (C, B) or None, and acceptance draws, (C,)."""
        length = max(1, min(self._length, INDEX_ENTRIES // (self._batch_size or 1)))
        block, place = divmod(step, length)
        if block != self._block:
            self._draw_block(block, length)
        rows_CB = None if self._batch_size is None else self._rows[place]
        return rows_CB, self._acceptance[place]

    def _draw_block(self, block: int, length: int) -> None:
        draws = draw_block(
            block,
            self._streams,
            length,
            num_samples=self._num_samples,
            batch_size=self._batch_size,
            device=self._like.device,
        )
        self._block, self._acceptance = block, draws.acceptance.unbind(1)
        if draws.rows is not None:
            self._rows = draws.rows.transpose(0, 1).contiguous().unbind(0)


@dataclass
class StepContext:
    """All that a step of a sampler depends on, except the state of its chains.

    Attributes:
        posterior: the sampled density.
        steps: settings of the sampler.
        step: its number.
        lr: step sizes, (C, 1).
        root: their square roots, (C, 1).
        noise: of this step, standard normal, (C, D).
        rows: samples of this step's batches, (C, B); None for all of the data.
        acceptance_draws: of this step, uniform between 0 and 1, (C,).
        push: factor of the mean loss's gradient in a Langevin step, (C, 1).
        pull: share of the way back to the centre that such a step goes, (C, 1).
        is_adapting: whether a method may still adapt to the posterior: in the burn-in,
            or throughout if there is none.
    """

    posterior: Posterior
    steps: Steps
    step: int = field(init=False)
    lr: Tensor = field(init=False)
    root: Tensor = field(init=False)
    noise: Tensor = field(init=False)
    rows: Tensor | None = field(init=False)
    acceptance_draws: Tensor = field(init=False)
    push: Tensor = field(init=False)
    pull: Tensor = field(init=False)
    is_adapting: bool = field(init=False)

    def __post_init__(self) -> None:
        """Allocate memory."""
        self._memory_CD = torch.empty_like(self.posterior.centre)

    def set_lr(self, lr_C: Tensor) -> None:
        """Set the step sizes, (C,)."""
        self.lr = lr_C[:, None]
        self.root = self.lr.sqrt()
        self.push = self.lr * self.posterior.nbeta[:, None] / -2
        self.pull = self.lr * self.posterior.localization[:, None] / 2

    def advance_to(self, step: int, numbers: RandomNumbers) -> None:
        """Take the random numbers of a step."""
        self.step = step
        self.noise = numbers.noise(step)
        self.rows, self.acceptance_draws = numbers.batch(step)
        last = self.steps.num_burnin_steps
        self.is_adapting = step < last or last == 0

    def gradients(self, weights_CD: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean losses (C,) of the step's batch and their gradients (C, D).

        The gradients are in memory that the next call writes over.
        """
        return self.posterior.losses.gradients(weights_CD, self.rows)

    def drift(self, weights_CD: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean losses (C,) of the batch and the energy's gradient (C, D)."""
        losses_C, gradients_CD = self.gradients(weights_CD)
        return losses_C, self.drift_of(weights_CD, gradients_CD)

    def drift_of(self, weights_CD: Tensor, gradients_CD: Tensor) -> Tensor:
        """Return the energy's gradient (C, D) from that of the mean loss.

        It is the posterior's, in memory that the next call writes over.
        """
        posterior, drift_CD = self.posterior, self._memory_CD
        torch.sub(weights_CD, posterior.centre, out=drift_CD)
        drift_CD.mul_(posterior.localization[:, None])
        drift_CD.addcmul_(posterior.nbeta[:, None], gradients_CD)
        return drift_CD if posterior.free is None else drift_CD.mul_(posterior.free)

    def langevin_step(self, weights_CD: Tensor) -> Tensor:
        """Take a step of Langevin dynamics in place.

        The pull to the centre, the gradient and the noise are added one after another,
        which is the smallest number of passes over the weights.

        Args:
            weights_CD: positions before the step; overwritten by those after it.

        Returns:
            The mean losses of the batch before the step, (C,).
        """
        losses_C, gradients_CD = self.gradients(weights_CD)
        if self.posterior.free is not None:
            gradients_CD.mul_(self.posterior.free)
        weights_CD.lerp_(self.posterior.centre, self.pull)
        weights_CD.addcmul_(self.push, gradients_CD).addcmul_(self.root, self.noise)
        return losses_C

    def descend(self, by_CD: Tensor, drift_CD: Tensor) -> Tensor:
        """Add -(lr / 2) drift to `by_CD` in place and return it."""
        return by_CD.addcmul_(self.lr, drift_CD, value=-0.5)
