"""Memory of a file of a graph when it is read, from its beginning."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence

import numpy as np

from curvflow.schemas import graph_heads as heads
from curvflow.schemas.nodes import Array
from curvflow.tasks.datasets.graph_files.blocks import opened

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


def _unpacked(content: Array) -> float:
    """Return about how many bytes a text has, if all is packed as its beginning."""
    raw = content[: heads.HEAD_BYTES].tobytes()
    if raw[:2] != heads.GZIP:
        return float(len(content))
    try:
        text = zlib.decompressobj(wbits=31).decompress(raw)
    except zlib.error as error:
        raise ValueError(
            "expected a .gz file, got one that is broken. Compress it again."
        ) from error
    return len(content) * len(text) / len(raw)
