"""METIS files: a line of neighbours for each node."""

from __future__ import annotations

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.graph_heads import MetisHead
from curvflow.schemas.nodes import Array
from curvflow.tasks.datasets.graph_files.blocks import (
    BLOCK_BYTES,
    Cells,
    blocks,
    cells_of,
    weights_of,
    whole_numbers,
)
from curvflow.tasks.datasets.graph_files.entries import Entries, joined


def read_metis(
    content: Array, head: MetisHead, block_bytes: int = BLOCK_BYTES
) -> Entries:
    """Return the neighbours of each node as entries.

    Args:
        content: the bytes of the file, compressed or not.
        head: its beginning.
        block_bytes: read at once.

    Raises:
        InputError: a line is none of the format, or there are more or fewer.
    """
    parts: list[list[Array]] = [[], [], []]
    num_lines = 0
    for number, text in blocks(content, block_bytes):
        cells = cells_of(number, text, keeps_blank=True)
        cells = _within(cells.of(cells.lines > head.line), head, num_lines)
        for part, ends in zip(parts, _neighbours(cells, head), strict=True):
            part.append(ends)
        parts[0][-1] += num_lines
        num_lines += len(cells.lines)
    if num_lines < head.size:
        raise InputError(
            f"path: expected a line for each of {head.size} nodes, got {num_lines}. "
            "Mend the first line; a node without neighbours has an empty one."
        )
    sources, targets = joined(parts[0], "int32"), joined(parts[1], "int32")
    num_loops = int((sources == targets).sum())
    if 2 * head.num_edges not in (len(sources), len(sources) + num_loops):
        raise InputError(
            f"path: expected {head.num_edges} edges, each at both ends, as line "
            f"{head.line} says, got {len(sources)} neighbours. "
            "List each edge at both of its ends, or mend the line."
        )
    weights = joined(parts[2], "float64") if head.has_weights else None
    return Entries(np.arange(1, head.size + 1), sources, targets, weights, "both")


def _within(cells: Cells, head: MetisHead, num_lines: int) -> Cells:
    """Return the lines of nodes, without blank lines behind the last."""
    is_node = num_lines + np.arange(len(cells.lines)) < head.size
    superfluous = ~is_node & (cells.counts > 0)
    if superfluous.any():
        line = cells.lines[int(np.argmax(superfluous))]
        raise InputError(
            f"path: expected a line for each of {head.size} nodes, got another in line "
            f"{line}. Remove it, or mend the first line."
        )
    return cells.of(is_node)


def _neighbours(cells: Cells, head: MetisHead) -> tuple[Array, Array, Array]:
    """Return line within the block, neighbour and weight of each entry."""
    extra = cells.counts - head.skipped
    wrong = (extra < 0) | ((extra % 2 > 0) & head.has_weights)
    if wrong.any():
        at = int(np.argmax(wrong))
        what = "pairs of a neighbour and a weight" if head.has_weights else "neighbours"
        raise InputError(
            f"path: expected {head.skipped} weights of the node and {what} in line "
            f"{cells.lines[at]}, got {cells.counts[at]} numbers. "
            "Mend the line, or the format in the first one."
        )
    begins = np.cumsum(cells.counts) - cells.counts
    place = np.arange(len(cells.starts)) - np.repeat(begins, cells.counts)
    is_weight = (place - head.skipped) % 2 == 1 if head.has_weights else place < 0
    is_neighbour = (place >= head.skipped) & ~is_weight
    is_weight &= place >= head.skipped
    lines = np.repeat(np.arange(len(cells.lines)), cells.counts)[is_neighbour]
    targets = whole_numbers(cells.chosen(is_neighbour), 1, head.size, "a node") - 1
    weights = weights_of(cells.chosen(is_weight)) if head.has_weights else np.zeros(0)
    return lines, targets, weights
