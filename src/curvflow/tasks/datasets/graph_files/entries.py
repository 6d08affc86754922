"""Entries of a file of a graph, before directions and repetitions are settled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from curvflow.schemas.nodes import Array

# An edge list does not say whether its edges have directions; a `matrix` has entries on
# both sides of its diagonal; `once` stands for each undirected edge; of `both` the
# format asks for each edge in both directions.
Form = Literal["listed", "matrix", "once", "both"]


@dataclass(frozen=True)
class Entries:
    """The content of a file: an entry for each edge that it lists.

    Attributes:
        names: numbers, int64, or names of the nodes, (D,).
        sources: position of the node that each entry begins at, (E,).
        targets: of the node that it ends at, (E,).
        weights: finite and positive, (E,); None where the file has none.
        form: what an entry stands for.
    """

    names: Array
    sources: Array
    targets: Array
    weights: Array | None
    form: Form


def first_wrong_weight(weights: Array) -> int | None:
    """Return the position of the first weight that is not finite and positive."""
    sound = (weights > 0) & (weights < np.inf)
    return None if sound.all() else int(np.argmin(sound))


def joined(blocks: list[Array], dtype: str) -> Array:
    """Return arrays as one, along their last dimension, and empty the list."""
    whole = np.concatenate(blocks, axis=-1) if blocks else np.zeros(0, dtype)
    blocks.clear()
    return whole.astype(dtype, copy=False)
