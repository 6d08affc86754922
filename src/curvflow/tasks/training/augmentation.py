"""Inputs of batches that are changed at random, as images are shifted and flipped."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.train import Augmentation
from curvflow.tasks.networks.problems import Problem, Samples
from curvflow.tasks.training.gradients import Noise, Uniform


@dataclass(frozen=True)
class Augmenter:
    """Changes of the inputs of batches, for all models at once.

    Models with equal seeds have the same changes, whatever their rules. The draw
    depends on the seed and the step alone, so that going on needs no state.

    Attributes:
        params: the changes.
    """

    params: Augmentation

    def applied(self, samples: Samples, noise: Noise) -> Samples:
        """Return samples with other inputs.

        Args:
            samples: of all models, shared or not; images are (channels, height, width).
            noise: random numbers of the step.

        Returns:
            The samples, no longer shared.
        """
        uniform, params = noise.uniform(), self.params
        models, shape = len(noise.seeds), samples.inputs.shape[1:]
        x = samples.inputs.expand(models, *shape)
        if params.shift or params.flip:
            x = self._moved(x, uniform)
        if params.erase:
            x = x.masked_fill(self._erased(x, uniform), 0)
        if params.noise:
            x = x + params.noise * _normal(uniform, shape).to(x)
        return Samples(x, samples.targets.expand(models, *samples.targets.shape[1:]))

    def _moved(self, x: Tensor, uniform: Uniform) -> Tensor:
        """Return images that are moved, and exchanged left and right."""
        count, most = x.shape[1], self.params.shift
        moves_MB2 = _whole(uniform, (count, 2), 2 * most + 1, x) - most
        rows, columns = (
            torch.arange(size, device=x.device).expand(len(x), count, size)
            for size in x.shape[-2:]
        )
        if self.params.flip:
            is_flipped_MB1 = (uniform((count, 1)) < 0.5).to(x.device)
            columns = torch.where(is_flipped_MB1, columns.flip(-1), columns)
        return _taken(
            _taken(x, rows + moves_MB2[..., :1], 3), columns + moves_MB2[..., 1:], 4
        )

    def _erased(self, x: Tensor, uniform: Uniform) -> Tensor:
        """Return which pixels are set to zero, (M, B, 1, height, width)."""
        side, inside = self.params.erase, []
        for size in x.shape[-2:]:
            first_MB1 = _whole(uniform, (x.shape[1], 1), size, x) - side // 2
            places = torch.arange(size, device=x.device)
            inside.append((places >= first_MB1) & (places < first_MB1 + side))
        return (inside[0].unsqueeze(-1) & inside[1].unsqueeze(-2)).unsqueeze(2)


def augmenter(params: Augmentation | None, problem: Problem) -> Augmenter | None:
    """Return the changes of a training, or None if there are none.

    Args:
        params: the changes.
        problem: whose inputs they are.

    Raises:
        InputError: the inputs are tokens or several, or no images where such are
            changed.
    """
    if params is None:
        return None
    if names := problem.several:
        raise InputError(
            f"augment cannot be combined with several inputs, {', '.join(names)}. "
            "Remove it, or draw in the module."
        )
    if problem.takes_integers:
        raise InputError(
            "augment cannot be combined with inputs that are tokens. Remove it."
        )
    if params.takes_images and len(problem.input_shape) != 3:
        raise InputError(
            "augment: expected images (channels, height, width) for shift, flip and "
            f"erase, got inputs of shape {problem.input_shape}. Remove these, or do "
            "not flatten the images."
        )
    return Augmenter(params)


def _whole(
    uniform: Uniform, shape: tuple[int, ...], count: int, like: Tensor
) -> Tensor:
    """Return whole numbers from 0 below a count, (M, *shape)."""
    numbers = (uniform(shape) * count).long().clamp(max=count - 1)
    return numbers.to(like.device)


def _normal(uniform: Uniform, shape: tuple[int, ...]) -> Tensor:
    """Return normal numbers, (M, *shape), two uniform ones for each (Box, Muller)."""
    length = (-2 * torch.log1p(-uniform(shape))).sqrt()
    return length * torch.cos(2 * math.pi * uniform(shape))


def _taken(x: Tensor, places_MBn: Tensor, dim: int) -> Tensor:
    """Return rows (dim 3) or columns (dim 4) of images, zeros beyond the edges."""
    size = x.shape[dim]
    shape = [*x.shape[:2], 1, 1, 1]
    shape[dim] = size
    places = places_MBn.reshape(shape).expand(x.shape)
    taken = x.gather(dim, places.clamp(0, size - 1))
    return taken.masked_fill((places < 0) | (places >= size), 0)
