"""Edge lists and CSV files."""

from __future__ import annotations

from collections.abc import Sequence

from curvflow.schemas.graph_heads import edges_head, head_of
from curvflow.schemas.nodes import Array
from curvflow.tasks.datasets.graph_files.blocks import (
    BLOCK_BYTES,
    blocks,
    cells_of,
    check_counts,
    weights_of,
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
