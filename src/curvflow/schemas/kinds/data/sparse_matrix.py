"""Declaration of `data.sparse_matrix`, and the check of its file while planning."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Annotated

from pydantic import Field, model_validator

from curvflow.errors import InputError
from curvflow.schemas.explanations import Explanation
from curvflow.schemas.graph_heads import SYMMETRIES, matrix_market_banner
from curvflow.schemas.kind import Kind
from curvflow.schemas.kinds.shared.datasets import MATRIX_OUTPUTS
from curvflow.schemas.nodes import Array, Matrix
from curvflow.schemas.params import Ints, Params, SourceFile

NUMBERS = ("real", "integer")


class SparseMatrixParams(Params):
    """A file, or a grid whose Laplacian is made."""

    path: Annotated[str | None, SourceFile()] = Field(
        None, description="MatrixMarket file, .mtx, of a symmetric matrix"
    )
    grid: Ints | None = Field(
        None, min_length=1, max_length=3, description="points along each direction"
    )
    shift: float = Field(0.0, ge=0, description="added to the diagonal")

    @property
    def rows(self) -> int | None:
        """Rows of the matrix, D; None if read from a file."""
        return None if self.grid is None else prod(self.grid)

    @model_validator(mode="after")
    def _one_source(self) -> SparseMatrixParams:
        if (self.path is None) == (self.grid is None):
            got = "neither" if self.path is None else "both"
            raise ValueError(
                f"expected one of 'path' and 'grid', got {got}. Give one of them."
            )
        if self.grid is not None and min(self.grid) < 1:
            raise ValueError(
                f"expected a grid of points, got {list(self.grid)}. Write 1 or more "
                "along each side."
            )
        return self


def check(params: SparseMatrixParams, files: Mapping[str, Mapping[str, Array]]) -> None:
    """Refuse a file that is no symmetric matrix, by its first lines.

    Args:
        params: not used beyond the file.
        files: the bytes of the file, under `path`.

    Raises:
        InputError: it is not in MatrixMarket form, not square, or not of real numbers.
    """
    if params.path is None:
        return
    if "bytes" not in files["path"]:
        raise InputError(
            f"path: expected a .mtx file, got {params.path}. Save the matrix in "
            "MatrixMarket form."
        )
    text = files["path"]["bytes"].tobytes()[:4096].decode("latin-1")
    lines = text.splitlines() or [""]
    entries, symmetry = matrix_market_banner(lines[0])
    if entries not in NUMBERS or symmetry not in SYMMETRIES:
        raise InputError(
            f"path: expected real numbers, symmetric or general, got {entries} "
            f"{symmetry}. Save the matrix in such a form."
        )
    _check_sizes(next((line for line in lines[1:] if line[:1] not in "%"), ""))


def _check_sizes(line: str) -> None:
    sizes = line.split()
    if len(sizes) != 3 or not all(size.isdecimal() for size in sizes):
        raise InputError(
            f"path: expected rows, columns and entries, got '{line[:60]}'. Correct the "
            "line."
        )
    if sizes[0] != sizes[1] or int(sizes[0]) < 2:
        raise InputError(
            f"path: expected a square matrix, got {sizes[0]} rows and {sizes[1]} "
            "columns. Take a square one."
        )


KIND = Kind(
    name="data.sparse_matrix",
    version=1,
    summary="Sparse symmetric matrix from a MatrixMarket file, or a grid's Laplacian.",
    params=SparseMatrixParams,
    returns=Matrix,
    outputs=MATRIX_OUTPUTS,
    check=check,
)

EXPLANATION = Explanation(
    formula=(
        "grid: 2 per direction on the diagonal, -1 for each neighbour, so that λ = "
        "Σ 4 sin²(πi / (2n + 2)); plus shift · I"
    ),
    source="none: the entries are the user's, or the Laplacian's",
    cost="none: the entries that are not zero are kept",
    example="""\
study: example
stages:
  laplacian: {use: data.sparse_matrix, grid: [20, 20], shift: 0.01}
  logdet: {use: probe.logdet, matrix: laplacian, floor: 0.01}
""",
    page="moments.md#matrices-as-data",
    units={"grid": "point", "shift": "as the entries"},
)
