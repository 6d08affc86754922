"""Graphs of files."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas import graph_heads as heads
from curvflow.schemas.kinds.data.graphs.graph import GraphParams
from curvflow.schemas.kinds.shared.graphs import graph as graph_of
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.datasets.graph_files.arrays import read_npz
from curvflow.tasks.datasets.graph_files.blocks import BLOCK_BYTES
from curvflow.tasks.datasets.graph_files.edge_lists import read_edges
from curvflow.tasks.datasets.graph_files.entries import Entries
from curvflow.tasks.datasets.graph_files.gml import read_gml
from curvflow.tasks.datasets.graph_files.matrices import read_matrix
from curvflow.tasks.datasets.graph_files.metis import read_metis
from curvflow.tasks.datasets.graph_files.sizes import reading_bytes
from curvflow.tasks.numerics.graphs.merging import (
    largest_component,
    merged,
    num_mirrored,
    one_sided,
)
from curvflow.tasks.registry import Machine, computes_each

# What cutting out a component takes beside, as a part of the rest.
CUTTING = 1.25


def member_bytes(member: Member) -> int:
    """Return the peak working memory of one graph; that of a block if it is broken."""
    params = cast("GraphParams", member.params)
    content, file_format = member.files["path"]["bytes"], cast("str", params.format)
    try:
        read = reading_bytes(file_format, params.columns, content)
    except (InputError, ValueError):
        return BLOCK_BYTES  # reading it tells what is wrong
    cutting = CUTTING if params.component == "largest" else 1.0
    return BLOCK_BYTES + int(cutting * read)


@computes_each("data.graph", member_bytes=member_bytes)
def graph(member: Member, machine: Machine) -> Outcome:
    """Read the graph of a file, and make one edge of what joins two nodes.

    Args:
        member: the parameters and the bytes of the file.
        machine: not used.

    Returns:
        The compressed rows, and numbers or names of the nodes.

    Raises:
        InputError: the file cannot be read, has no edge, or is refused as directed.
    """
    params = cast("GraphParams", member.params)
    entries = read(params, member.files["path"]["bytes"])
    names, matrix = _undirected(params, entries)
    if params.component == "largest":
        nodes = largest_component(matrix)
        names, matrix = names[nodes], matrix[nodes][:, nodes]
    is_plain = bool((matrix.data == 1).all())
    arrays = graph_of(matrix.indptr, matrix.indices, None if is_plain else matrix.data)
    are_numbers = names.dtype.kind != "U"
    arrays["ids"] = names if are_numbers else np.zeros(0, np.int64)
    arrays["names"] = np.zeros(0, "U1") if are_numbers else names
    return Outcome(arrays)


def read(
    params: GraphParams, content: Array, block_bytes: int = BLOCK_BYTES
) -> Entries:
    """Return the entries of a file.

    Args:
        params: its format, and columns if it has some.
        content: its bytes.
        block_bytes: of a text, read at once.

    Raises:
        InputError: it is of another form.
    """
    if params.format == "npz":
        return read_npz(content)
    if params.format == "gml":
        return read_gml(content, refuses_directed=params.directed == "refuse")
    if params.format == "edges":
        return read_edges(content, params.columns, block_bytes)
    lines = heads.head_of(content)
    if params.format == "metis":
        return read_metis(content, heads.metis_head(lines), block_bytes)
    is_smat = params.format == "smat"
    head = heads.smat_head(lines) if is_smat else heads.matrix_market_head(lines)
    return read_matrix(content, head, block_bytes)


def _undirected(params: GraphParams, entries: Entries) -> tuple[Array, Any]:
    """Return the names of the nodes, and the symmetric matrix of the weights."""
    sources, targets, weights = entries.sources, entries.targets, entries.weights
    if params.self_loops == "drop":
        apart = sources != targets
        if not apart.all():
            sources, targets = sources[apart], targets[apart]
            weights = None if weights is None else weights[apart]
    if not len(sources):
        got = "none. Take another file"
        if len(entries.sources):
            got = "loops alone. Set self_loops: keep, or take another file"
        raise InputError(f"path: expected a graph with edges, got {got}.")
    if entries.form == "once":  # i j and j i are two edges, as i j twice
        sources, targets = np.maximum(sources, targets), np.minimum(sources, targets)
    size = len(entries.names)
    matrix = merged(size, sources, targets, weights, params.multi_edges)
    _check_directions(params, entries, matrix)
    matrix = matrix.maximum(matrix.T.tocsr())
    matrix.sort_indices()
    return entries.names, matrix


def _check_directions(params: GraphParams, entries: Entries, matrix: Any) -> None:
    """Refuse a matrix whose entries are no undirected edges, where that is required.

    An edge list may have all its edges once, or all of them in both directions.

    Raises:
        InputError: an edge has one direction alone.
    """
    if entries.form == "once" or (
        entries.form != "both" and params.directed == "symmetrise"
    ):
        return
    if entries.form == "listed" and not num_mirrored(matrix):
        return
    pair = one_sided(matrix)
    if pair is None:
        return
    i, j = (entries.names[node] for node in pair)
    if entries.form == "both":
        raise InputError(
            f"path: expected each edge at both its nodes, got the one between {i} and "
            f"{j} at one of them, or of another weight there. Set entries to what the "
            "file lists."
        )
    raise InputError(
        f"directed: expected each edge in both directions, got the one between {i} and "
        f"{j} in one of them, or of another weight there. Set directed: symmetrise."
    )
