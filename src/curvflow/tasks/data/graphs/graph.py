"""Graphs of files, and the memory that reading one takes, from its beginning."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas import graph_heads as heads
from curvflow.schemas.kinds.data.graphs.graph import GraphParams
from curvflow.schemas.kinds.shared.graphs import graph as graph_of
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.datasets.graph_files.arrays import read_npz
from curvflow.tasks.datasets.graph_files.blocks import BLOCK_BYTES, opened
from curvflow.tasks.datasets.graph_files.entries import Entries
from curvflow.tasks.datasets.graph_files.gml import read_gml
from curvflow.tasks.datasets.graph_files.text_formats import (
    read_edges,
    read_matrix,
    read_metis,
)
from curvflow.tasks.numerics.graphs.rows import (
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
    _check_sums(matrix)
    return entries.names, matrix


def _check_sums(matrix: Any) -> None:
    """Refuse weights whose sums no number holds.

    Raises:
        InputError: the sum of a node's weights is infinite.
    """
    if matrix.data.dtype.kind == "f" and not np.isfinite(matrix.sum(axis=1)).all():
        raise InputError(
            "path: expected weights of finite sums, got some beyond the largest "
            "number. Divide them by a common factor."
        )


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
            f"{j} at one of them, or of another weight there. Mend the file."
        )
    raise InputError(
        f"directed: expected each edge in both directions, got the one between {i} and "
        f"{j} in one of them, or of another weight there. Set directed: symmetrise."
    )


# Bytes of an entry at the peak, as measured: of METIS each edge is two entries already.
# What entries of edge lists have beside: a weight, and names that are no integers.
ENTRY = {
    "edges": 76,
    "npz": 76,
    "matrix_market": 80,
    "smat": 84,
    "metis": 53,
    "gml": 76,
}
WEIGHT, NAMES = 30, 75


def reading_bytes(
    file_format: str, columns: Sequence[int | str] | None, content: Array
) -> int:
    """Return the peak working memory of reading a file, in bytes.

    Args:
        file_format: as `data.graph` names it.
        columns: of an edge list, as they are given.
        content: its bytes, compressed or not.

    Raises:
        InputError: it is of another form.
        ValueError: it is no archive of arrays, or its arrays are none of a graph.
    """
    entry = ENTRY[file_format]
    if file_format == "edges":
        lines = heads.head_of(content)
        head = heads.edges_head(lines, columns)
        cells = heads.cells_of(lines[head.first - 1], has_commas=head.has_commas)
        ends = [cells[at] for at in head.columns[:2]]
        entry += WEIGHT * (len(head.columns) > 2)
        entry += NAMES * (not all(map(heads.INTEGER.fullmatch, ends)))
    return entry * estimated_entries(file_format, content)


# Arrays of an archive that have an item for each entry.
ITEMS = ("indices.npy", "col.npy", "edges.npy")


def estimated_entries(file_format: str, content: Array) -> int:
    """Return about how many entries a file has.

    Args:
        file_format: as `data.graph` names it.
        content: its bytes, compressed or not.

    Returns:
        What the beginning says. Where that says nothing: as many as a file of so many
        bytes has whose lines are all like the first ones.

    Raises:
        InputError: it is of another form.
        ValueError: it is no archive of arrays, or its arrays are none of a graph.
    """
    if file_format == "npz":
        return _items(content)
    lines = heads.head_of(content)
    if file_format == "metis":
        return 2 * heads.metis_head(lines).num_edges
    if file_format == "smat":
        return heads.smat_head(lines).entries
    if file_format == "matrix_market":
        return heads.matrix_market_head(lines).entries
    edges = sum(line.strip() in ("edge", "edge [") for line in lines)
    many = edges if file_format == "gml" else len(lines)
    return round(many * _unpacked(content) / max(1, sum(len(x) + 1 for x in lines)))


def _items(content: Array) -> int:
    try:
        with zipfile.ZipFile(opened(content)) as archive:
            name = next(item for item in ITEMS if item in archive.namelist())
            with archive.open(name) as file:
                version = np.lib.format.read_magic(file)
                reading = (
                    np.lib.format.read_array_header_1_0
                    if version == (1, 0)
                    else np.lib.format.read_array_header_2_0
                )
                return int(reading(file)[0][0])
    except (zipfile.BadZipFile, StopIteration, IndexError, OSError) as error:
        raise ValueError(
            "expected an archive of the arrays of a graph, got another file. Save it "
            "by scipy.sparse.save_npz."
        ) from error


MOST_UNPACKED = 1 << 24  # bytes that an estimate unpacks


def _unpacked(content: Array) -> float:
    """Return about how many bytes a text has, if all is packed as its beginning."""
    raw = content[: heads.HEAD_BYTES].tobytes()
    if raw[:2] != heads.GZIP:
        return float(len(content))
    try:
        text, taken, _ = heads.unpacked(raw, MOST_UNPACKED)
    except zlib.error as error:
        raise ValueError(
            "expected a .gz file, got one that is broken. Compress it again."
        ) from error
    return len(content) * len(text) / taken
