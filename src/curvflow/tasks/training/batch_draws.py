"""Random numbers of networks in training, of batches of the data that stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from curvflow.tasks.numerics.derivatives.passes import Draw, Part
from curvflow.tasks.training.gradients import Noise, Uniform


@dataclass(frozen=True)
class BatchDraws:
    """Random numbers of networks in training, of each batch of the data.

    Attributes:
        seeds: of the models; a single one is that of all.
        batch_size: samples of a batch.
    """

    seeds: Sequence[int]
    batch_size: int

    def at(self, part: Part) -> Uniform:
        """Return the source of a batch, which draws the same at each call."""
        return self.of(part.models, part.rows, part.weights)

    def of(self, models: slice, rows: slice, weights_MD: Tensor) -> Uniform:
        """Return the source of a batch of some models, given their weights."""
        number = rows.start // self.batch_size
        shared = len(self.seeds) == 1
        seeds = [*self.seeds] * len(weights_MD) if shared else self.seeds[models]
        return Noise(seeds, number, "dropout", weights_MD).uniform()

    def select(self, models: Tensor) -> BatchDraws:
        """Return the sources of some of the models, by their indices (m,)."""
        return replace(self, seeds=[self.seeds[model] for model in models.tolist()])


@dataclass(frozen=True)
class PairDraws:
    """Random numbers of networks in training, of pairs of a model and a batch.

    Attributes:
        seeds: of the models.
        like: a tensor of the dtype and device of the numbers.
        call: of several, each of which draws its own.
    """

    seeds: Sequence[int]
    like: Tensor
    call: int = 0

    def of_models(self, models: int, batches: Tensor) -> Draw:
        """Return the source of each batch of each model, batches within models."""
        assert models == len(self.seeds)
        return self._of([(s, b) for s in self.seeds for b in batches.tolist()])

    def at(self, part: Part) -> Draw:
        """Return the source of the pairs of a pass, as many for each model."""
        each = len(part.weights) // len(self.seeds)
        return self.of_models(len(self.seeds), torch.arange(each))

    def select(self, models: Tensor) -> PairDraws:
        """Return the sources of some of the models, by their indices (m,)."""
        return replace(self, seeds=[self.seeds[model] for model in models.tolist()])

    def _of(self, pairs: Sequence[tuple[int, int]]) -> Draw:
        sources = [
            Noise([seed], batch, f"dropout {self.call}", self.like).uniform()
            for seed, batch in pairs
        ]
        return lambda shape: torch.cat([source(shape) for source in sources])
