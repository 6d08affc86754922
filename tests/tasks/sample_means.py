"""Means over samples whose matrices are at hand."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from curvflow.tasks.numerics import BatchedDense


@dataclass(frozen=True)
class Means:
    """The mean over N symmetric matrices, (N, D, D), for each of M models alike."""

    matrices: Tensor
    models: int

    @property
    def shape(self):
        return (self.models, *self.matrices.shape[1:])

    @property
    def num_samples(self):
        return len(self.matrices)

    @property
    def dtype(self):
        return self.matrices.dtype

    @property
    def device(self):
        return self.matrices.device

    def __matmul__(self, columns):
        return self.matrices.mean(0) @ columns

    def select(self, models):
        return Means(self.matrices, len(models))

    def of_samples(self, models, rows):
        assert models.shape == rows.shape[:1]
        return BatchedDense(self.matrices[rows].mean(1))


def random_means(seed: int, models: int) -> Means:
    """Draw samples that differ little or much, of few or many directions."""
    rng = np.random.default_rng(seed)
    count, size = int(rng.integers(5, 90)), int(rng.integers(2, 9))
    spread = 10 ** rng.uniform(-1, 0.5)
    common = rng.normal(size=(size, size)) / size + np.eye(size)
    own = spread * rng.normal(size=(count, size, size))
    if rng.random() < 0.5:  # positive, and some far larger than others
        own = own @ own.swapaxes(1, 2) * rng.exponential(size=(count, 1, 1))
    matrices = torch.as_tensor(common + own)
    return Means((matrices + matrices.mT) / 2, models)
