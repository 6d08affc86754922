"""Mini-batches, shuffled by each model's seed, and the split of a validation set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.networks.problems import Samples
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.training.gradients import Noise


@dataclass(frozen=True)
class Subset:
    """A subset of the samples for each model, gathered when it is read.

    Attributes:
        samples: all samples.
        chosen: numbers of the samples in the subset, (M, N).
    """

    samples: Samples
    chosen: Tensor

    @property
    def count(self) -> int:
        """Number of samples, N."""
        return self.chosen.shape[1]

    @property
    def device(self) -> torch.device:
        """Device that holds the samples."""
        return self.samples.device

    @property
    def num_targets(self) -> int:
        """Values per target, C; 1 for a label."""
        return self.samples.num_targets

    def rows(self, chosen: slice) -> Samples:
        """Return the samples of a slice of each model's subset."""
        return self.samples.taken(self.chosen[:, chosen])

    def taken(self, rows_MB: Tensor) -> Samples:
        """Return for each model the samples of these numbers, (M, B)."""
        return self.samples.taken(self.chosen.gather(1, rows_MB))


def split_validation(
    samples: Samples, seeds: Sequence[int], fraction: float
) -> tuple[Samples | Subset, Samples | Subset]:
    """Split samples into a training and a validation set by each model's seed.

    Args:
        samples: samples of all models, shared or not.
        seeds: one per model.
        fraction: fraction of the samples in the validation set.

    Returns:
        The training and the validation set; the latter is empty where the fraction is
        0.

    Raises:
        InputError: the fraction leaves one of the sets empty.
    """
    if fraction == 0:
        return samples, samples.rows(slice(0, 0))
    num_validation = round(fraction * samples.count)
    if num_validation in (0, samples.count):
        empty, change = (
            ("validation", "Raise") if num_validation == 0 else ("training", "Lower")
        )
        raise InputError(
            f"validation_fraction: expected at least one {empty} sample of the "
            f"{samples.count} samples, got {fraction:g}. {change} it."
        )
    orders = {
        seed: torch.randperm(samples.count, generator=stream(seed, "validation"))
        for seed in set(seeds)
    }
    order_MN = torch.stack([orders[seed] for seed in seeds]).to(samples.device)
    return Subset(samples, order_MN[:, num_validation:]), Subset(
        samples, order_MN[:, :num_validation]
    )


@dataclass(frozen=True)
class LabelNoise:
    """Labels of batches replaced by those of other classes.

    A sample comes once in an epoch, so that each epoch has independent noise. Models
    with equal seeds have the same, whatever their rules.

    Attributes:
        share: of the labels that are replaced, on average.
        classes: number of classes.

    Reference:
        Blanc, Gupta, Valiant and Valiant (2020), arXiv:1904.09080, for noise drawn anew
        with each gradient.
    """

    share: float
    classes: int

    def applied(self, samples: Samples, noise: Noise) -> Samples:
        """Return samples of which some have another label.

        Args:
            samples: of all models, shared or not.
            noise: random numbers of the step.

        Returns:
            The samples, no longer shared.
        """
        uniform, shape = noise.uniform(), tuple(samples.targets.shape[1:])
        is_replaced = uniform(shape) < self.share
        other = 1 + (uniform(shape) * (self.classes - 1)).long()
        labels = (samples.targets + other.clamp(max=self.classes - 1)) % self.classes
        labels = torch.where(is_replaced, labels, samples.targets)
        inputs = samples.inputs.expand(len(labels), *samples.inputs.shape[1:])
        return Samples(inputs, labels)


class Batches:
    """Batches of training samples, shuffled anew each epoch by each model's seed.

    The last batch of an epoch may be smaller, or is dropped. Models with equal seeds
    see the same batches, whatever their rules.

    Attributes:
        used: samples used in each epoch.
    """

    def __init__(
        self,
        samples: Samples | Subset,
        seeds: Sequence[int],
        batch_size: int | None,
        *,
        drop_last: bool = False,
    ) -> None:
        """Take the data, the seed of each model, and the size (None for all)."""
        self._samples = samples
        self._size = min(batch_size or samples.count, samples.count)
        self.used = samples.count
        if drop_last:
            self.used -= samples.count % self._size
        is_whole = self._size == samples.count
        self._whole = [samples.rows(slice(None))] if is_whole else []
        shuffled = [] if is_whole else sorted(set(seeds))
        self._streams = [stream(seed, "order") for seed in shuffled]
        rank = {seed: number for number, seed in enumerate(shuffled)}
        self._which = torch.tensor([rank.get(seed, 0) for seed in seeds])
        self._orders_SN = torch.zeros(len(shuffled), samples.count, dtype=torch.int64)

    @property
    def count(self) -> int:
        """Number of samples, N."""
        return self._samples.count

    @property
    def steps(self) -> int:
        """Number of batches of an epoch."""
        return -(-self.used // self._size)

    def epoch(self, done: int = 0) -> Iterator[Samples]:
        """Yield the batches of an epoch.

        Args:
            done: batches of the current epoch to skip; 0 begins the next epoch.
        """
        if not self._streams:
            yield from self._whole[done:]
            return
        if done == 0:
            self.skip(1)
        order_MN = self._orders_SN[self._which].to(self._samples.device)
        for start in range(done * self._size, self.used, self._size):
            yield self._samples.taken(
                order_MN[:, start : min(start + self._size, self.used)]
            )

    def in_order(self) -> Iterator[Samples]:
        """Yield batches in the order of the data, of the sizes used in training."""
        for start in range(0, self.used, self._size):
            yield self._samples.rows(slice(start, min(start + self._size, self.used)))

    def skip(self, epochs: int) -> None:
        """Advance the shuffling by a number of epochs."""
        for generator, order_N in zip(self._streams, self._orders_SN, strict=True):
            for _ in range(epochs):
                torch.randperm(self.count, generator=generator, out=order_N)

    def tensors(self) -> dict[str, Tensor]:
        """Return the order of the current epoch and the states of the generators."""
        states = [generator.get_state() for generator in self._streams]
        drawn = torch.stack(states) if states else torch.zeros(0, dtype=torch.uint8)
        return {"order": self._orders_SN, "streams": drawn}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the order and the generators of another epoch."""
        self._orders_SN = tensors["order"]
        for generator, state in zip(self._streams, tensors["streams"], strict=True):
            # A copy: given a view into other memory, set_state reads beyond its end.
            generator.set_state(state.clone())
