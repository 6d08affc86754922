"""Sparse symmetric matrices."""

from __future__ import annotations

import io
from functools import reduce
from typing import Any, cast

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.kinds.data.sparse_matrix import SparseMatrixParams
from curvflow.schemas.kinds.shared.datasets import matrix
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.registry import Machine, computes_each


@computes_each("data.sparse_matrix")
def sparse_matrix(member: Member, machine: Machine) -> Outcome:
    """Read the matrix of a MatrixMarket file, or make a grid's Laplacian.

    The Laplacian has 2 per direction on the diagonal and -1 for each neighbour, with
    zeros beyond the border: its eigenvalues are sums of 4 sin(pi i / (2 (n + 1)))^2.

    Args:
        member: the parameters and the bytes of the file.
        machine: not used.

    Returns:
        The compressed rows.

    Raises:
        InputError: the file cannot be read, or its matrix is not symmetric or not
            finite.
    """
    from scipy import sparse

    params = cast("SparseMatrixParams", member.params)
    unshifted = _laplacian(params.grid) if params.grid else _read(member)
    shifted = sparse.csr_array(
        unshifted + params.shift * sparse.eye_array(unshifted.shape[0])
    )
    shifted.sort_indices()
    return Outcome(
        matrix(
            "sparse",
            shifted.shape[0],
            indptr=shifted.indptr.astype(np.int64),
            indices=shifted.indices.astype(np.int64),
            values=shifted.data.astype(np.float64),
        )
    )


def _laplacian(grid: tuple[int, ...]) -> Any:
    from scipy import sparse

    def line(count: int) -> Any:
        ends = np.ones(count)
        return sparse.diags_array(
            [-ends[1:], 2 * ends, -ends[1:]], offsets=[-1, 0, 1], format="csr"
        )

    return reduce(lambda a, b: sparse.kronsum(b, a, format="csr"), map(line, grid))


def _read(member: Member) -> Any:
    from scipy import io as files
    from scipy import sparse

    content = member.files["path"]["bytes"].tobytes()
    try:
        matrix = sparse.csr_array(files.mmread(io.BytesIO(content)))
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(
            f"path: expected a MatrixMarket file, got one that breaks off ({error}). "
            "Save it again."
        ) from error
    if not np.isfinite(matrix.data).all():
        # NaN compares as symmetric, too.
        raise InputError(
            "path: expected finite entries, got NaN or infinity. Correct them."
        )
    gap = abs(matrix - matrix.T).max()
    if gap > 1e-12 * abs(matrix).max():
        raise InputError(
            f"path: expected a symmetric matrix, got a[i,j] - a[j,i] up to {gap:.3g}. "
            "Take its symmetric part."
        )
    return matrix
