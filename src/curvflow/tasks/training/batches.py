"""The order in which models see their data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.problems import Samples


class Batches:
    """Batches of training samples, shuffled anew each epoch by each model's seed.

    The last batch of an epoch may be smaller. Models of equal seeds, whatever their
    rules, see the same batches.
    """

    def __init__(
        self, samples: Samples, seeds: Sequence[int], batch_size: int | None
    ) -> None:
        """Take the data, the seed of each model, and the size (None for all)."""
        self._samples = samples
        self._size = min(batch_size or samples.count, samples.count)
        shuffled = sorted(set(seeds)) if self._size < samples.count else []
        self._streams = [stream(seed, "order") for seed in shuffled]
        rank = {seed: number for number, seed in enumerate(shuffled)}
        self._which = torch.tensor([rank.get(seed, 0) for seed in seeds])
        self._orders_SN = torch.zeros(len(shuffled), samples.count, dtype=torch.int64)

    @property
    def count(self) -> int:
        """Number of samples of one epoch, N."""
        return self._samples.count

    def epoch(self, done: int = 0) -> Iterator[Samples]:
        """Yield the batches of an epoch.

        Args:
            done: how many of the epoch under way are left out; 0 begins the next epoch.
        """
        if not self._streams:
            yield from [self._samples][done:]
            return
        if done == 0:
            self.skip(1)
        order_MN = self._orders_SN[self._which].to(self._samples.inputs.device)
        for start in range(done * self._size, self.count, self._size):
            yield self._take(order_MN[:, start : start + self._size])

    def skip(self, epochs: int) -> None:
        """Shuffle as often as so many epochs do."""
        for generator, order_N in zip(self._streams, self._orders_SN, strict=True):
            for _ in range(epochs):
                torch.randperm(self.count, generator=generator, out=order_N)

    def _take(self, rows_MB: Tensor) -> Samples:
        inputs, targets = self._samples.inputs, self._samples.targets
        if len(inputs) == 1:
            return Samples(inputs[0][rows_MB], targets[0][rows_MB])
        models = torch.arange(len(inputs), device=inputs.device).unsqueeze(1)
        return Samples(inputs[models, rows_MB], targets[models, rows_MB])

    def tensors(self) -> dict[str, Tensor]:
        """Return the order of the epoch under way, and what draws the next."""
        states = [generator.get_state() for generator in self._streams]
        drawn = torch.stack(states) if states else torch.zeros(0, dtype=torch.uint8)
        return {"order": self._orders_SN, "streams": drawn}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go back to the order of another epoch."""
        self._orders_SN = tensors["order"]
        for generator, state in zip(self._streams, tensors["streams"], strict=True):
            # A copy: given a view into other memory, set_state reads beyond its end.
            generator.set_state(state.clone())
