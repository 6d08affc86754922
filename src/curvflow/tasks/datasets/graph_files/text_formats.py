"""Text formats of graphs: edge lists, METIS, MatrixMarket and `.smat`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.graph_heads import MatrixHead, MetisHead, edges_head, head_of
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
from curvflow.tasks.datasets.graph_files.names import NodeNames


def read_edges(
    content: Array,
    columns: Sequence[int | str] | None,
    block_bytes: int = BLOCK_BYTES,
) -> Entries:
    """Return the edges of a file with one in each line.

    Args:
        content: the bytes of the file, compressed or not.
        columns: names, or numbers from 1, of the two ends and maybe the weight.
        block_bytes: read at once.

    Raises:
        InputError: a line has no such cells.
    """
    head = edges_head(head_of(content), columns)
    nodes, weights = NodeNames(), []
    for number, text in blocks(content, block_bytes):
        cells = cells_of(number, text, has_commas=head.has_commas)
        if number <= head.header:
            cells = cells.of(cells.lines > head.header)
        if not len(cells.lines):
            continue
        check_counts(cells, head.num_cells)
        source, target, *weight = [cells.column(at) for at in head.columns]
        nodes.add(source, target)
        weights += [weights_of(column) for column in weight]
    names, (sources, targets) = nodes.nodes()
    has_weights = len(head.columns) > 2
    values = joined(weights, "float64") if has_weights else None
    return Entries(names, sources, targets, values, "listed")


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
