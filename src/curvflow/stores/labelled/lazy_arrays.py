"""Arrays over the axes of a stage, read lazily and aligned by label."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from typing import Any

import numpy as np
from xarray.backends import BackendArray
from xarray.core.indexing import (
    ExplicitIndexer,
    IndexingSupport,
    explicit_indexing_adapter,
)

from curvflow.schemas.nodes import Array
from curvflow.stores.payload_digests import TOGETHER_BYTES

Cell = tuple[int, ...]
# Reads nodes; those that lack the variable are left out.
ReadCells = Callable[[Sequence[Cell]], Mapping[Cell, Array]]


class NodesArray(BackendArray):
    """One variable of many nodes; missing values are filled."""

    def __init__(
        self,
        read: ReadCells,
        *,
        axes: tuple[int, ...],
        inner: tuple[int, ...],
        dtype: np.dtype[Any],
        places: Sequence[Mapping[Cell, Array]],
    ) -> None:
        """Describe the array; `places` holds nodes' positions per inner dimension."""
        self._read, self._num_axes, self._places = read, len(axes), places
        self.shape, self.dtype = axes + inner, dtype

    def __getitem__(self, key: ExplicitIndexer) -> Array:
        """Read the selection of an xarray indexer from the store."""
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
        cells = [
            (place, tuple(int(pick[p]) for pick, p in zip(axes, place, strict=True)))
            for place in product(*(range(len(pick)) for pick in axes))
        ]
        size = self.dtype.itemsize * math.prod(self.shape[self._num_axes :])
        most = max(1, TOGETHER_BYTES // max(1, size))
        for start in range(0, len(cells), most):
            few = cells[start : start + most]
            arrays = self._read([cell for _, cell in few])
            for place, cell in few:
                if cell in arrays:
                    selected[place] = self._placed(cell, arrays[cell])[np.ix_(*inner)]
        dropped = [isinstance(part, int | np.integer) for part in key]
        return selected[tuple(0 if drop else slice(None) for drop in dropped)]

    def _placed(self, cell: Cell, array: Array) -> Array:
        inner = self.shape[self._num_axes :]
        array = array.reshape(array.shape + (1,) * (len(inner) - array.ndim))
        if array.shape == inner and not any(cell in places for places in self._places):
            return array
        where = [
            _positions(places.get(cell), size)
            for places, size in zip(self._places, array.shape, strict=True)
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
    """Return an array of missing values: NaN, empty text, or 0 for integers."""
    fill: object = "" if dtype.kind == "O" else np.nan if dtype.kind in "fc" else 0
    return np.full(shape, fill, dtype)


REAL = frozenset("biuf")


@dataclass(frozen=True)
class Labels:
    """Union of the nodes' labels.

    Attributes:
        values: shape (labels,).
        places: per node the positions of its labels among them; nodes whose labels
            are simply the first ones are left out.
    """

    values: Array
    places: Mapping[Cell, Array] = field(default_factory=dict)


def align_labels(
    node_labels: Mapping[str, Array], cells: Mapping[Cell, str]
) -> Labels | None:
    """Return the union of the nodes' labels; None where they give no position."""
    if len(node_labels) == 1:
        return Labels(_plain(next(iter(node_labels.values()))))
    rows = {digest: labels.tolist() for digest, labels in node_labels.items()}
    if not all(is_distinct(row) for row in rows.values()):
        return None
    union = list(dict.fromkeys(chain(*rows.values())))
    if {labels.dtype.kind for labels in node_labels.values()} <= REAL:
        union.sort()
    position = {label: number for number, label in enumerate(union)}
    where = {
        digest: np.array([position[label] for label in row], dtype=np.intp)
        for digest, row in rows.items()
    }
    moved = {d for d, row in where.items() if not np.array_equal(row, range(len(row)))}
    return Labels(
        np.array(union, np.result_type(*map(_plain, node_labels.values()))),
        {cell: where[digest] for cell, digest in cells.items() if digest in moved},
    )


def is_distinct(labels: Sequence[object]) -> bool:
    """Return whether no label repeats and none is NaN, which equals nothing."""
    return len(set(labels)) == len(labels) and all(label == label for label in labels)


def _plain(array: Array) -> Array:
    # Text of fixed width has no stable form in zarr; objects are written as text.
    return array.astype(object) if array.dtype.kind == "U" else array
