"""Matrices, graphs and maps known by their products, to be measured."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.datasets import matrix as matrix_variables
from curvflow.schemas.kinds.shared.operators import GraphOperatorName, OperatorParams
from curvflow.schemas.nodes import Array, Matrix
from curvflow.tasks.curvature.operators import GRAPH, MATRIX, matrix_operator
from curvflow.tasks.library.arguments import checked, short
from curvflow.tasks.library.operators import SymmetricOperator
from curvflow.tasks.numerics.operators.adapters import Foreign, Single, from_scipy
from curvflow.tasks.numerics.operators.base import (
    BatchedOperator,
    Dense,
    as_batched,
    product,
)
from curvflow.tasks.numerics.operators.graphs import Adjacency, graph_operator
from curvflow.tasks.numerics.operators.matrices import KernelMatrix
from curvflow.tasks.registry import Machine

# Asymmetry that products may have by rounding, relative to their length.
ASYMMETRY = {torch.float32: 1e-4, torch.float64: 1e-6}


def from_matrix(matrix: Any, *, dtype: torch.dtype | None = None) -> SymmetricOperator:
    """Return a symmetric matrix, or a map known by its products, as an operator.

    A map is multiplied with two random vectors, by which its symmetry is checked.

    Args:
        matrix: a tensor, dense or sparse, a NumPy array, a SciPy sparse matrix or
            `LinearOperator`, or an operator of the numerics; real and symmetric.
        dtype: of the products; None takes that of the matrix, float64 if it holds
            integers or half precision.

    Returns:
        The operator.

    Raises:
        InputError: the matrix is not square, not symmetric, not real or not finite, or
            there are no products of that precision.
    """
    _check_dtype(dtype)
    if isinstance(matrix, Dense):
        matrix = matrix.matrix
    if isinstance(matrix, Tensor | np.ndarray):
        return _entries(torch.as_tensor(matrix), dtype)
    if hasattr(matrix, "tocsr"):
        return _sparse(matrix, dtype)
    if not hasattr(matrix, "shape"):
        raise InputError(
            f"matrix: expected an array or an operator, got {type(matrix).__name__}. "
            "Make it one by numpy.asarray."
        )
    if isinstance(matrix, KernelMatrix) or not _is_scipy(matrix):
        operator = matrix
    else:
        operator = from_scipy(matrix, dtype=dtype or _precision(matrix))
    batched = as_batched(operator)
    if len(operator.shape) == 3 and operator.shape[0] != 1:
        raise InputError(
            f"matrix: expected one operator, got {operator.shape[0]} of a batch. "
            "Select one."
        )
    _check_square(*batched.shape[1:])
    if not isinstance(operator, Single):  # which is symmetric as it is made
        _check_products(batched)
    return SymmetricOperator(batched, {MATRIX: batched.shape[1]})


def from_graph(
    adjacency: Any,
    operator: GraphOperatorName,
    *,
    isolated: Literal["zero", "one", "drop"],
    r: float | Literal["auto"],
    dtype: torch.dtype | None = None,
) -> SymmetricOperator:
    """Return a matrix of an undirected graph as an operator.

    Args:
        adjacency: its weights, a SciPy sparse matrix or an array, (D, D); not negative.
        operator: which matrix; see `graph_operator`.
        isolated: eigenvalue of nodes without edges in the normalized ones; drop leaves
            these nodes out.
        r: of the Bethe Hessian.
        dtype: of the products; None takes float64.

    Returns:
        The operator; of the size of the graph only its rows are stored.

    Raises:
        InputError: the adjacency is not square, symmetric, real, finite and without
            negative weights, has no edge, or has no such operator; or the settings
            do not fit the operator.
    """
    _check_dtype(dtype)
    checked(OperatorParams, operator=operator, isolated=isolated, r=r)
    rows = _edges(adjacency)
    weights = torch.as_tensor(rows.data)
    if (weights < 0).any():
        raise InputError(
            f"adjacency: expected weights of at least 0, got {float(weights.min()):g}. "
            "Take their magnitudes, or from_matrix for a matrix of your own."
        )
    graph = Adjacency.of(
        torch.as_tensor(rows.indptr),
        torch.as_tensor(rows.indices),
        weights,
        dtype=dtype or torch.float64,
        drop_isolated=isolated == "drop",
    )
    made = graph_operator(
        graph, operator, isolated=isolated, r=None if r == "auto" else r
    )
    return SymmetricOperator(as_batched(made), {GRAPH: made.shape[0]}, name=operator)


def _check_dtype(dtype: torch.dtype | None) -> None:
    is_one = dtype is None or (isinstance(dtype, torch.dtype) and dtype in ASYMMETRY)
    if not is_one:
        raise InputError(
            f"dtype: expected torch.float32 or torch.float64, got {short(dtype)}. Pass "
            "one, or leave it out."
        )


def graph_rows(adjacency: Any) -> dict[str, Array]:
    """Return the compressed rows of an adjacency, by which a graph is known.

    Args:
        adjacency: as for `from_graph`.
    """
    rows = _edges(adjacency)
    return {
        "indptr": rows.indptr.astype(np.int64),
        "indices": rows.indices.astype(np.int64),
        "weights": rows.data.astype(np.float64),
    }


def _edges(adjacency: Any) -> Any:
    rows = sparse_rows(adjacency)
    rows.eliminate_zeros()
    return rows


def _is_scipy(matrix: Any) -> bool:
    return not isinstance(matrix, Foreign) and not hasattr(matrix, "device")


def _precision(matrix: Any) -> torch.dtype:
    is_single = np.dtype(getattr(matrix, "dtype", None) or float) == np.float32
    return torch.float32 if is_single else torch.float64


def _entries(matrix: Tensor, dtype: torch.dtype | None) -> SymmetricOperator:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(
            f"matrix: expected a square one, got shape {tuple(matrix.shape)}. Pass a "
            "symmetric matrix."
        )
    if matrix.layout != torch.strided:
        kept = torch.float32 if matrix.dtype == torch.float32 else torch.float64
        return _sparse(_compressed(matrix), dtype or kept, str(matrix.device))
    if matrix.is_complex():
        raise InputError(
            f"matrix: expected real entries, got {matrix.dtype}. Pass its real part, "
            "or the real matrix of twice the size."
        )
    if not matrix.numel():
        raise InputError("matrix: expected one row or more, got none. Pass some.")
    matrix = matrix.detach()
    if matrix.dtype != torch.float32:  # integers and half precision as well
        matrix = matrix.double()
    _check_symmetric(float((matrix - matrix.T).abs().max()), float(matrix.abs().max()))
    dtype, device = dtype or matrix.dtype, str(matrix.device)
    entries = matrix.cpu().numpy()
    return _of_entries(
        matrix_variables("dense", len(matrix), dense=entries), dtype, device
    )


def _compressed(matrix: Tensor) -> Any:
    """Return a sparse tensor as a SciPy matrix of double precision."""
    from scipy import sparse

    entries = matrix.detach().cpu().to_sparse().coalesce()
    values = entries.values()
    values = values if values.is_complex() else values.double()
    places = tuple(entries.indices().numpy())
    return sparse.coo_array((values.numpy(), places), shape=tuple(matrix.shape))


def _sparse(
    matrix: Any, dtype: torch.dtype | None, device: str = "cpu"
) -> SymmetricOperator:
    dtype = dtype or _precision(matrix)
    matrix = sparse_rows(matrix)
    arrays = matrix_variables(
        "sparse",
        matrix.shape[0],
        indptr=matrix.indptr.astype(np.int64),
        indices=matrix.indices.astype(np.int64),
        values=matrix.data.astype(np.float64),
    )
    return _of_entries(arrays, dtype, device)


def sparse_rows(matrix: Any) -> Any:
    """Return a symmetric matrix as SciPy's compressed rows, their indices sorted.

    Args:
        matrix: a SciPy sparse matrix, or what SciPy makes one of.

    Raises:
        InputError: it is no matrix of numbers, or not square, not symmetric, not real
            or not finite.
    """
    from scipy import sparse

    try:
        rows = sparse.csr_array(matrix)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"matrix: expected rows and columns of numbers, got "
            f"{type(matrix).__name__} of others ({error}). Pass an array of floats."
        ) from error
    if rows.ndim != 2 or not rows.shape[0]:
        raise InputError(
            f"matrix: expected rows and columns, got the shape {rows.shape}. Pass a "
            "square array of numbers."
        )
    matrix = rows
    _check_square(*matrix.shape)
    if np.issubdtype(matrix.dtype, np.complexfloating):
        raise InputError(
            f"matrix: expected real entries, got {matrix.dtype}. Pass its real part."
        )
    matrix = matrix.sorted_indices()
    gap = abs(matrix - matrix.T)
    _check_symmetric(float(gap.max()), float(abs(matrix).max()))
    return matrix


def _check_square(rows: int, columns: int) -> None:
    if rows != columns:
        raise InputError(
            f"matrix: expected a square one, got {rows} by {columns}. Pass a symmetric "
            "matrix."
        )


def _check_products(operator: BatchedOperator) -> None:
    """Compare x.Ay with y.Ax for two random vectors x and y."""
    size, generator = operator.shape[1], torch.Generator().manual_seed(0)
    pair_D2 = torch.randn(size, 2, dtype=torch.float64, generator=generator)
    pair_D2 = pair_D2.to(operator.device)
    images_D2 = product(operator, pair_D2.unsqueeze(0)).squeeze(0)
    forms_22 = pair_D2.T @ images_D2
    x_Ay, y_Ax = float(forms_22[0, 1]), float(forms_22[1, 0])
    length = float(images_D2.norm(dim=0).mean())
    if abs(x_Ay - y_Ax) > ASYMMETRY[operator.dtype] * length:
        raise InputError(
            "matrix: expected a symmetric operator, got one with x.Ay = "
            f"{x_Ay:.7g} and y.Ax = {y_Ax:.7g} for random vectors x and y, an "
            f"asymmetry of {abs(x_Ay - y_Ax) / length:.2g} relative to |Ax|. Pass one "
            "that equals its transpose; if its products are of single precision, pass "
            "dtype=torch.float32."
        )


def _check_symmetric(gap: float, largest: float) -> None:
    if not math.isfinite(largest):
        raise InputError(
            "matrix: expected finite entries, got NaN or infinity. Remove them."
        )
    if gap > 1e-6 * largest:
        raise InputError(
            f"matrix: expected a symmetric one, got entries that differ by {gap:.2g} "
            "from those across the diagonal. Pass (A + A.T) / 2."
        )


def _of_entries(
    arrays: dict[str, Array], dtype: torch.dtype, device: str
) -> SymmetricOperator:
    entries = Matrix("library", "", {}, arrays, "")
    operator = matrix_operator(entries, Machine(device), dtype)
    return SymmetricOperator(
        as_batched(operator), {MATRIX: operator.shape[0]}, entries=entries
    )
