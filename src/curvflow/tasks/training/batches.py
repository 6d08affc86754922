"""The order in which models see their data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
        self._streams = {seed: stream(seed, "order") for seed in seeds}
        rank = {seed: number for number, seed in enumerate(self._streams)}
        self._which = torch.tensor([rank[seed] for seed in seeds])

    @property
    def count(self) -> int:
        """Number of samples of one epoch, N."""
        return self._samples.count

    def epoch(self) -> Iterator[Samples]:
        """Yield the batches of the next epoch."""
        count = self._samples.count
        if self._size == count:
            yield self._samples
            return
        orders = [torch.randperm(count, generator=g) for g in self._streams.values()]
        order_MN = torch.stack(orders)[self._which].to(self._samples.inputs.device)
        for start in range(0, count, self._size):
            yield self._take(order_MN[:, start : start + self._size])

    def _take(self, rows_MB: Tensor) -> Samples:
        inputs, targets = self._samples.inputs, self._samples.targets
        if len(inputs) == 1:
            return Samples(inputs[0][rows_MB], targets[0][rows_MB])
        models = torch.arange(len(inputs), device=inputs.device).unsqueeze(1)
        return Samples(inputs[models, rows_MB], targets[models, rows_MB])
