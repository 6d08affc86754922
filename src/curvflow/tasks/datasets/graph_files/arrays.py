"""Graphs as named arrays: sparse matrices, compressed rows, or pairs of ends."""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.graph_heads import WRONG_WEIGHT, check_size
from curvflow.schemas.nodes import Array
from curvflow.tasks.datasets.graph_files.blocks import opened
from curvflow.tasks.datasets.graph_files.entries import (
    Entries,
    first_wrong_weight,
)
from curvflow.tasks.datasets.graph_files.names import compressed

# What NumPy ends in with an archive that is broken.
BROKEN = (
    *(
        ValueError,
        TypeError,
        AttributeError,
        EOFError,
        OSError,
        RuntimeError,
        SyntaxError,
        KeyError,
    ),
    *(OverflowError, MemoryError, NotImplementedError, struct.error),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
FORMS = "indptr and indices, edges, or a sparse matrix of scipy.sparse.save_npz"


def read_npz(content: Array) -> Entries:
    """Return the entries of named arrays.

    Args:
        content: the bytes of the file.

    Raises:
        InputError: it is no such file, or its arrays do not fit each other.
    """
    arrays = _loaded(content)
    if "format" in arrays:
        return _sparse_matrix(arrays)
    if "indptr" in arrays and "indices" in arrays:
        entries = _rows(arrays, len(arrays["indptr"]) - 1)
        return _entries(*entries, _weights(arrays, "weights"))
    if "edges" not in arrays:
        got = ", ".join(sorted(arrays)[:10]) or "nothing"
        raise InputError(
            f"path: expected the arrays {FORMS}, got {got}. Save them under "
            "these names."
        )
    edges = arrays["edges"]
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise InputError(
            f"path: expected edges as integers of shape (E, 2), got {edges.dtype} of "
            f"shape {edges.shape}. Save a row of two nodes for each edge."
        )
    if edges.dtype == np.uint64 and edges.size and edges.max() >= 1 << 63:
        raise InputError(
            "path: expected edges below 2^63, got a larger number. Number the nodes "
            "anew."
        )
    weights = _weights(arrays, "weights")
    _check_lengths(len(edges), weights)
    names, ends = compressed(np.ascontiguousarray(edges.T).astype(np.int64))
    return Entries(names, ends[0], ends[1], weights, "listed")


def _loaded(content: Array) -> dict[str, Array]:
    try:
        loaded = np.load(opened(content), allow_pickle=False)
        # A single array has no names, and fails as what is broken does.
        return {name: loaded[name] for name in loaded.files}
    except BROKEN as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(
            f"path: expected an .npz file of numbers, got one that is none "
            f"({reason}). Write it by np.savez, without objects."
        ) from error


def _sparse_matrix(arrays: Mapping[str, Array]) -> Entries:
    """Return the entries of a matrix as `scipy.sparse.save_npz` writes it."""
    name = arrays["format"]
    form = name.tobytes().rstrip(b"\0").decode("latin-1") if name.ndim == 0 else ""
    form = form.replace("\0", "")  # a text may take four bytes a letter
    wanted = {"csr": ("indptr", "indices"), "csc": ("indptr", "indices")}
    wanted["coo"] = ("row", "col")
    if form not in wanted:
        raise InputError(
            f"path: expected a sparse matrix in csr, csc or coo, got '{form[:60]}'. "
            "Save it by save_npz(path, matrix.tocsr())."
        )
    lacking = [n for n in (*wanted[form], "data", "shape") if n not in arrays]
    if lacking:
        raise InputError(
            f"path: expected the array {lacking[0]} of {form}, got none. Save it "
            "by scipy.sparse.save_npz."
        )
    size = _size(arrays["shape"])
    if form == "coo":
        rows, columns = (_integers(arrays, part) for part in ("row", "col"))
        if len(rows) != len(columns):
            raise InputError(
                f"path: expected row and col of one length, got {len(rows)} and "
                f"{len(columns)}. Save the matrix by scipy.sparse.save_npz."
            )
        entries = size, rows, columns
    else:
        entries = _rows(arrays, size)
        if form == "csc":
            entries = size, entries[2], entries[1]
    return _entries(*entries, _weights(arrays, "data"))


def _size(shape: Array) -> int:
    sizes = shape.ravel().tolist()
    if shape.dtype.kind not in "iu" or len(sizes) != 2 or sizes[0] != sizes[1]:
        raise InputError(
            f"path: expected a square matrix, got the shape {sizes[:4]}. Give "
            "the adjacency matrix of a graph."
        )
    return int(sizes[0])


def _integers(arrays: Mapping[str, Array], name: str) -> Array:
    array = arrays[name]
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(
            f"path: expected {name} as a list of integers, got {array.dtype} of shape "
            f"{array.shape}. Save the matrix by scipy.sparse.save_npz."
        )
    return array.astype(np.int64)


def _rows(arrays: Mapping[str, Array], size: int) -> tuple[int, Array, Array]:
    """Return the size, and row and column of each entry of compressed rows."""
    indptr, indices = (_integers(arrays, name) for name in ("indptr", "indices"))
    counts = np.diff(indptr)
    fits = len(indptr) == size + 1 and len(indptr) and indptr[0] == 0
    if not fits or (counts < 0).any() or indptr[-1] != len(indices):
        raise InputError(
            f"path: expected indptr that rises from 0 to the {len(indices)} indices, in"
            f" {size + 1} steps, got others. Save the matrix by scipy.sparse.save_npz."
        )
    return size, np.repeat(np.arange(size), counts), indices


def _entries(
    size: int, sources: Array, targets: Array, weights: Array | None
) -> Entries:
    check_size(size)
    for ends in (sources, targets):
        wrong = (ends < 0) | (ends >= size)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise InputError(
                f"path: expected a node from 0 to {size - 1}, got {ends[at]} in entry "
                f"{at}. Mend the entry, or the shape."
            )
    _check_lengths(len(sources), weights)
    return Entries(np.arange(size), sources, targets, weights, "matrix")


def _check_lengths(entries: int, weights: Array | None) -> None:
    if weights is not None and len(weights) != entries:
        raise InputError(
            f"path: expected a weight of each of {entries} entries, got "
            f"{len(weights)}. Save one for each."
        )


def _weights(arrays: Mapping[str, Array], name: str) -> Array | None:
    """Return the weights; None where there are none, or all are 1 or true."""
    if name not in arrays or not arrays[name].size:
        return None
    array = arrays[name]
    if array.ndim != 1 or array.dtype.kind not in "biuf":
        raise InputError(
            f"path: expected {name} as a list of numbers, got {array.dtype} of shape "
            f"{array.shape}. Save them as one array of floats."
        )
    weights = array.astype(np.float64)
    wrong = first_wrong_weight(weights)
    if wrong is not None:
        raise InputError(WRONG_WEIGHT.format(f"{weights[wrong]:g} in entry {wrong}"))
    return weights
