"""Random numbers of training, each model's from its own stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.tasks.numerics.streams import stream


@dataclass(frozen=True)
class Noise:
    """What the models of a batch draw in one step, told apart by purpose.

    Streams begin anew at each step, so that nothing needs to be kept to go on. Models
    of equal seeds draw the same, whatever their rules.

    Attributes:
        seeds: one per model.
        step: steps taken before this one.
        purpose: what is drawn, such as `dropout`.
        like: a tensor of the dtype and device wanted.
    """

    seeds: Sequence[int]
    step: int
    purpose: str
    like: Tensor

    def uniform(self) -> Uniform:
        """Return a source of uniform numbers; equal sources draw the same."""
        return Uniform(self)

    def of(self, models: slice | Tensor) -> Noise:
        """Return the noise of some of the models."""
        if isinstance(models, slice):
            chosen = self.seeds[models]
        else:
            chosen = [self.seeds[model] for model in models.tolist()]
        return Noise(chosen, self.step, self.purpose, self.like)


class Uniform:
    """Draws uniform numbers, one shape after another."""

    def __init__(self, noise: Noise) -> None:
        """Take the noise it belongs to; streams are opened at the first draw."""
        self._noise = noise
        self._streams: dict[int, torch.Generator] = {}

    def __call__(self, shape: tuple[int, ...]) -> Tensor:
        """Return numbers in [0, 1), (M, *shape)."""
        noise = self._noise
        if not self._streams:
            purpose = f"{noise.purpose}:{noise.step}"
            self._streams = {s: stream(s, purpose) for s in set(noise.seeds)}
        drawn = {
            seed: torch.rand(shape, generator=generator, dtype=noise.like.dtype)
            for seed, generator in self._streams.items()
        }
        return torch.stack([drawn[seed] for seed in noise.seeds]).to(noise.like.device)
