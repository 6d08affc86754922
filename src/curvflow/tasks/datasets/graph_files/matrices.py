"""Sparse matrices with an entry in each line: MatrixMarket and `.smat` files."""

from __future__ import annotations

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.graph_heads import MatrixHead
from curvflow.schemas.nodes import Array
from curvflow.tasks.datasets.graph_files.blocks import (
    BLOCK_BYTES,
    Cells,
    blocks,
    cells_of,
    check_counts,
    weights_of,
    whole_numbers,
)
from curvflow.tasks.datasets.graph_files.entries import Entries, joined


def read_matrix(
    content: Array, head: MatrixHead, block_bytes: int = BLOCK_BYTES
) -> Entries:
    """Return the entries of a matrix.

    Args:
        content: the bytes of the file, compressed or not.
        head: its beginning.
        block_bytes: read at once.

    Raises:
        InputError: a line is no entry of the matrix, or there are more or fewer.
    """
    ends: list[Array] = []
    weights: list[Array] = []
    last = head.first + head.size - 1
    for number, text in blocks(content, block_bytes):
        cells = cells_of(number, text)
        if number <= head.line:
            cells = cells.of(cells.lines > head.line)
        if not len(cells.lines):
            continue
        check_counts(cells, 3 if head.has_values else 2)
        pair = [
            whole_numbers(cells.column(at), head.first, last, "a node") for at in (0, 1)
        ]
        if head.is_symmetric:
            _check_lower(cells, *pair)
        ends.append(np.stack(pair).astype(np.int32))
        if head.has_values:
            weights.append(weights_of(cells.column(2)))
    sources, targets = (
        joined(ends, "int32") - head.first if ends else np.zeros((2, 0), np.int32)
    )
    if len(sources) != head.entries:
        raise InputError(
            f"path: expected {head.entries} entries, as line {head.line} says, got "
            f"{len(sources)}. Mend the line, or fetch the file again."
        )
    return Entries(
        np.arange(head.first, last + 1),
        sources,
        targets,
        joined(weights, "float64") if head.has_values else None,
        "once" if head.is_symmetric else "matrix",
    )


def _check_lower(cells: Cells, rows: Array, columns: Array) -> None:
    is_above = columns > rows
    if is_above.any():
        at = int(np.argmax(is_above))
        raise InputError(
            "path: expected entries of a symmetric matrix on or below its diagonal, got"
            f" {rows[at]} {columns[at]} in line {cells.lines[at]}. Leave out "
            "what is above, or write `general` in the first line."
        )
