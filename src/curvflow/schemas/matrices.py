"""Symmetric matrices that are data: the variables that every matrix kind returns."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from curvflow.schemas.nodes import Array
from curvflow.schemas.variables import Variable

OUTPUTS = (
    Variable("form", "dense, sparse or kernel", dtype="str"),
    Variable("dense", "the entries", ("row", "column"), bulk=True),
    Variable("indptr", "where each row begins", ("row_end",), dtype="int64", bulk=True),
    Variable("indices", "column of each entry", ("entry",), dtype="int64", bulk=True),
    Variable("values", "the entries that are not zero", ("entry",), bulk=True),
    Variable(
        "points", "the points of a kernel matrix", ("point", "coordinate"), bulk=True
    ),
    Variable("kernel", "JSON of the function of two points", dtype="str"),
    Variable("size", "rows, D", dtype="int64"),
)

EMPTY: Mapping[str, Array] = {
    "dense": np.zeros((0, 0)),
    "indptr": np.zeros(0, dtype=np.int64),
    "indices": np.zeros(0, dtype=np.int64),
    "values": np.zeros(0),
    "points": np.zeros((0, 0)),
    "kernel": np.array(""),
}


def matrix(form: str, size: int, **arrays: Array) -> dict[str, Array]:
    """Return the variables of `OUTPUTS`.

    Args:
        form: `dense`, `sparse` or `kernel`.
        size: rows, D.
        **arrays: what the form uses.

    Returns:
        These, and arrays without elements for the rest.
    """
    told = {"form": np.array(form), "size": np.array(size, dtype=np.int64)}
    return {**EMPTY, **arrays, **told}
