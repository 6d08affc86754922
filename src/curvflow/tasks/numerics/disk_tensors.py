"""Samples that stay on disk, where code takes them for a tensor (M, N, ...).

Whatever is taken of them is a tensor with the bits that it has where all are in memory:
entries are turned from what is stored into what is computed with one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor


class Rows(Protocol):
    """An array on disk, of which slices and numbers of rows are read by indexing."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the whole array."""

    def __getitem__(self, rows: Any) -> Any:
        """Read some rows."""


class DiskTensor:
    """Samples of M data sets; indexing reads them.

    Attributes:
        shape: (M, N, ...), M is 1 for a set that is shared.
        dtype: of the rows read.
        device: rows are moved there.
    """

    def __init__(
        self, sets: Sequence[Rows], dtype: torch.dtype, device: torch.device | str
    ) -> None:
        """Take the data sets, of one shape."""
        self._sets = list(sets)
        self.dtype, self.device = dtype, torch.device(device)
        self.shape = torch.Size((len(self._sets), *self._sets[0].shape))

    def __len__(self) -> int:
        """Return the number of data sets, M."""
        return len(self._sets)

    def element_size(self) -> int:
        """Return the bytes of an entry of the rows read."""
        return self.dtype.itemsize

    def __getitem__(self, key: Any) -> Any:
        """Return data sets or samples, as of a tensor.

        Args:
            key: a slice or numbers of data sets, which are not read; or such and a
                slice of samples; or numbers of data sets and samples, in shapes that
                broadcast to (R, B).

        Returns:
            Data sets on disk, or samples, (M, B, ...) or (R, B, ...).
        """
        if not isinstance(key, tuple):
            chosen = np.arange(len(self))[_numpy(key)]
            return DiskTensor([self._sets[n] for n in chosen], self.dtype, self.device)
        models, rows = key
        if isinstance(rows, slice):
            few = self[models]
            read = [data[rows][np.newaxis] for data in few._sets]
            return few._loaded(read[0] if len(read) == 1 else np.concatenate(read))
        sets, numbers = np.broadcast_arrays(_numpy(models), _numpy(rows))
        flat = self.rows(torch.as_tensor(sets * self.shape[1] + numbers).flatten())
        return flat.view(*numbers.shape, *self.shape[2:])

    def rows(self, numbers_R: Tensor) -> Tensor:
        """Return samples of all data sets one below another, (R, ...).

        Args:
            numbers_R: of the samples, those of the second set behind the first.
        """
        # Models that see the same samples read them once, in the order of the file.
        wanted, places = np.unique(_numpy(numbers_R), return_inverse=True)
        owner, count = wanted // self.shape[1], self.shape[1]
        parts = [
            data[wanted[owner == number] - number * count]
            for number, data in enumerate(self._sets)
            if (owner == number).any()
        ]
        parts = parts or [self._sets[0][:0]]
        read = self._loaded(parts[0] if len(parts) == 1 else np.concatenate(parts))
        return read[torch.as_tensor(places, device=self.device)]

    def _loaded(self, array: Any) -> Tensor:
        return torch.as_tensor(array, dtype=self.dtype, device=self.device)


def _numpy(key: Any) -> Any:
    return key.cpu().numpy() if isinstance(key, Tensor) else key


def shared_rows(samples: Tensor, rows_MB: Tensor) -> Tensor:
    """Return samples of a data set that all models share, (M, B, ...).

    Args:
        samples: (1, N, ...), in memory or on disk.
        rows_MB: numbers of the samples.
    """
    if isinstance(samples, DiskTensor):
        flat = samples.rows(rows_MB.flatten())
        return flat.view(*rows_MB.shape, *samples.shape[2:])
    return samples[0][rows_MB]


def as_tensor(samples: DiskTensor) -> Tensor:
    """Return samples on disk where the type of those in memory is declared."""
    return cast("Tensor", samples)
