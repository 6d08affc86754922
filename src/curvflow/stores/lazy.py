"""An array over a stage's axes that reads only the nodes that are looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from xarray.backends import BackendArray
from xarray.core.indexing import (
    ExplicitIndexer,
    IndexingSupport,
    explicit_indexing_adapter,
)

from curvflow.schemas.nodes import Array

Cell = tuple[int, ...]
ReadCell = Callable[[Cell], Array | None]


class NodesArray(BackendArray):
    """One variable of many nodes; what a node lacks is filled."""

    def __init__(
        self,
        read: ReadCell,
        *,
        axes: tuple[int, ...],
        inner: tuple[int, ...],
        dtype: np.dtype[Any],
        places: Sequence[Mapping[Cell, Array]],
    ) -> None:
        """Describe the array without reading.

        Args:
            read: returns one node's array, or None.
            axes: number of labels along each axis.
            inner: shape within a node, at least that of the largest.
            dtype: object for text.
            places: per dimension within a node, where the values of nodes lie along
                it; those of other nodes come first.
        """
        self._read, self._num_axes, self._places = read, len(axes), places
        self.shape, self.dtype = axes + inner, dtype

    def __getitem__(self, key: ExplicitIndexer) -> Array:
        """Return what one of xarray's indexers names, read from the store."""
        array: Array = explicit_indexing_adapter(
            key, self.shape, IndexingSupport.OUTER, self._select
        )
        return array

    def _select(self, key: tuple[Any, ...]) -> Array:
        picks = [
            np.atleast_1d(np.arange(size)[part])
            for part, size in zip(key, self.shape, strict=True)
        ]
        axes, inner = picks[: self._num_axes], picks[self._num_axes :]
        selected = blank(tuple(map(len, picks)), self.dtype)
        for place in product(*(range(len(pick)) for pick in axes)):
            cell = tuple(int(pick[p]) for pick, p in zip(axes, place, strict=True))
            array = self._read(cell)
            if array is not None:
                selected[place] = self._placed(cell, array)[np.ix_(*inner)]
        dropped = [isinstance(part, int | np.integer) for part in key]
        return selected[tuple(0 if drop else slice(None) for drop in dropped)]

    def _placed(self, cell: Cell, array: Array) -> Array:
        inner = self.shape[self._num_axes :]
        array = array.reshape(array.shape + (1,) * (len(inner) - array.ndim))
        if array.shape == inner and not any(cell in one for one in self._places):
            return array
        where = [
            _positions(one.get(cell), size)
            for one, size in zip(self._places, array.shape, strict=True)
        ]
        placed = blank(inner, self.dtype)
        placed[np.ix_(*where)] = array
        return placed


def _positions(labelled: Array | None, size: int) -> Array:
    # Labels of another number than the values say nothing about them.
    if labelled is None or len(labelled) != size:
        return np.arange(size)
    return labelled


def blank(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array of what stands for nothing: NaN, or empty text."""
    fill: object = "" if dtype.kind == "O" else np.nan if dtype.kind in "fc" else 0
    return np.full(shape, fill, dtype)
