"""Training samples that are set apart to validate with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.problems import Samples


@dataclass(frozen=True)
class Subset:
    """Some of the samples, others for each model; they are gathered when asked for.

    Attributes:
        samples: all of them.
        chosen: numbers of those chosen, (M, N).
    """

    samples: Samples
    chosen: Tensor

    @property
    def count(self) -> int:
        """Number of samples, N."""
        return self.chosen.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the samples are."""
        return self.samples.device

    @property
    def num_targets(self) -> int:
        """Values per target, C; 1 for a label."""
        return self.samples.num_targets

    def rows(self, chosen: slice) -> Samples:
        """Return some of the samples of each model."""
        return self.samples.taken(self.chosen[:, chosen])

    def taken(self, rows_MB: Tensor) -> Samples:
        """Return for each model the samples of these numbers, (M, B)."""
        return self.samples.taken(self.chosen.gather(1, rows_MB))


def set_apart(
    samples: Samples, seeds: Sequence[int], fraction: float
) -> tuple[Samples | Subset, Samples | Subset]:
    """Part samples by each model's seed.

    Args:
        samples: of all models, shared or not.
        seeds: one per model.
        fraction: share that is set apart.

    Returns:
        The samples to train on, and those to validate with, which are none where the
        fraction is 0.

    Raises:
        InputError: the fraction leaves nothing on one of the sides.
    """
    if fraction == 0:
        return samples, samples.rows(slice(0, 0))
    apart = round(fraction * samples.count)
    if apart in (0, samples.count):
        none, change = ("set apart", "Raise") if apart == 0 else ("left", "Lower")
        raise InputError(
            f"validation_fraction: expected some of the {samples.count} training "
            f"samples to be {none}, got {fraction:g}. {change} it."
        )
    orders = {
        seed: torch.randperm(samples.count, generator=stream(seed, "validation"))
        for seed in set(seeds)
    }
    order_MN = torch.stack([orders[seed] for seed in seeds]).to(samples.device)
    return Subset(samples, order_MN[:, apart:]), Subset(samples, order_MN[:, :apart])
