"""Weights that are vectors in a plane, read from a stored network."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from curvflow.errors import InputError, nearest
from curvflow.schemas.nodes import Array, NodeData


def planar_rows(node: NodeData, tensor: str) -> list[tuple[str, Array]]:
    """Return the rows of two entries of a network's parameter tensors.

    PyTorch is not needed: the names and shapes are stored with the weights.

    Args:
        node: `weights` (D,) and `network`.
        tensor: name of one tensor, or the beginning of several names.

    Returns:
        Per row the tensor's name, with the row's number if it has rows, and the two
        entries.

    Raises:
        InputError: no tensor of that name has rows of two entries.
    """
    parts = dict(_tensors(node))
    names = [tensor] if tensor in parts else [n for n in parts if n.startswith(tensor)]
    rows = [row for name in names for row in _rows(name, parts[name])]
    if not rows:
        planar = [name for name, part in parts.items() if _rows(name, part)]
        shapes = ", ".join(f"{name} {parts[name].shape}" for name in names)
        raise InputError(
            f"tensor: expected the name of a tensor whose rows have two entries, got "
            f"{shapes or repr(tensor)}. {nearest(tensor, planar) or 'There is none.'}"
        )
    return rows


def _tensors(node: NodeData) -> Iterator[tuple[str, Array]]:
    start = 0
    for name, shape in json.loads(str(node["network"]))["parameters"]:
        stop = start + math.prod(shape)
        yield name, node["weights"][start:stop].reshape(shape)
        start = stop


def _rows(name: str, part: Array) -> list[tuple[str, Array]]:
    if part.shape == (2,):
        return [(name, part)]
    # A filter over one channel has the shape (1, 2).
    if part.shape[-1:] != (2,) or math.prod(part.shape[1:]) != 2:
        return []
    return [(f"{name}[{n}]", row) for n, row in enumerate(part.reshape(-1, 2))]
