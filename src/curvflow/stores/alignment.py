"""Labels along one dimension, and where each node's own lie among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from curvflow.schemas.nodes import Array
from curvflow.stores.lazy import Cell

REAL = frozenset("biuf")


@dataclass(frozen=True)
class Labels:
    """The union of the nodes' labels.

    Attributes:
        values: shape (labels,).
        places: per node the positions of its labels among them; nodes whose labels
            are simply the first ones are left out.
    """

    values: Array
    places: Mapping[Cell, Array] = field(default_factory=dict)


def aligned(own: Mapping[str, Array], cells: Mapping[Cell, str]) -> Labels | None:
    """Unite the labels of nodes: numbers in order, text as it first appears.

    Args:
        own: digest to labels, shape (labels of the node,).
        cells: position of each node that has labels to their digest.

    Returns:
        The union; the labels as they are if all nodes agree on them; None where they
        differ and repeat within a node, or are NaN, and so tell no position.
    """
    if len(own) == 1:
        return Labels(_plain(next(iter(own.values()))))
    rows = {digest: labels.tolist() for digest, labels in own.items()}
    if not all(is_distinct(row) for row in rows.values()):
        return None
    union = list(dict.fromkeys(chain(*rows.values())))
    if {labels.dtype.kind for labels in own.values()} <= REAL:
        union.sort()
    position = {label: number for number, label in enumerate(union)}
    where = {
        digest: np.array([position[label] for label in row], dtype=np.intp)
        for digest, row in rows.items()
    }
    moved = {d for d, row in where.items() if not np.array_equal(row, range(len(row)))}
    return Labels(
        np.array(union, np.result_type(*map(_plain, own.values()))),
        {cell: where[digest] for cell, digest in cells.items() if digest in moved},
    )


def is_distinct(labels: Sequence[object]) -> bool:
    """Return whether no label repeats and none is NaN, which equals nothing."""
    return len(set(labels)) == len(labels) and all(one == one for one in labels)


def _plain(array: Array) -> Array:
    # Text of fixed width has no stable form in zarr; objects are written as text.
    return array.astype(object) if array.dtype.kind == "U" else array
