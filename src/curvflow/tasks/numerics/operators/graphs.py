"""Matrices of graphs, multiplied by the rows of neighbours and the degrees."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.operators.base import scipy_operator

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

# Entries that torch's kernels count with 32 bits.
MOST_ENTRIES = 2**31 - 1


def rows_tensor(
    starts: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]
) -> Tensor:
    """Return a sparse tensor of compressed rows.

    Args:
        starts: where each row begins, (rows + 1,).
        columns: of each entry, ascending within a row.
        values: of each entry.
        shape: rows and columns.
    """
    with warnings.catch_warnings():
        # PyTorch says of CSR, once per process, that it may still change.
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
        return torch.sparse_csr_tensor(
            starts.int(), columns.int(), values, shape, check_invariants=True
        )


@dataclass(frozen=True)
class Adjacency:
    """The adjacency W of an undirected graph, its degrees and its loops.

    Attributes:
        matrix: W in PyTorch's CSR form, (D, D).
        degrees: d_i, the sum of row i, (D,).
        loops: the diagonal of W, (D,).
    """

    matrix: Tensor
    degrees: Tensor
    loops: Tensor

    @classmethod
    def of(
        cls,
        indptr: Tensor,
        indices: Tensor,
        weights: Tensor | None,
        *,
        dtype: torch.dtype,
        drop_isolated: bool = False,
    ) -> Adjacency:
        """Take the compressed rows of a graph.

        Args:
            indptr: where each row begins, (D + 1,).
            indices: neighbours, an edge in the rows of both its ends.
            weights: of these entries; None where all are 1.
            dtype: of the products.
            drop_isolated: leaves out nodes without an entry, so that D is smaller.

        Returns:
            The adjacency, on the device of the rows.

        Raises:
            InputError: the graph has no edge, or too many for one matrix.
        """
        if not len(indices):
            raise InputError("graph: expected edges, got none. Take another graph.")
        if len(indices) > MOST_ENTRIES:
            raise InputError(
                f"graph: expected at most {MOST_ENTRIES} entries, two for each edge, "
                f"got {len(indices)}. Take a part of it."
            )
        counts = indptr.diff()
        if drop_isolated:
            stay = counts > 0
            numbers = (stay.cumsum(0) - 1).to(indices.dtype)
            indices, counts = numbers[indices], counts[stay]
        size = len(counts)
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        if weights is None:
            values = torch.ones(len(indices), dtype=dtype, device=indices.device)
        else:
            values = weights.to(dtype)
        matrix = rows_tensor(starts, indices, values, (size, size))
        rows = torch.repeat_interleave(counts)
        on = rows == indices
        zeros = values.new_zeros(size)
        return cls(
            matrix,
            zeros.index_add(0, rows, values),
            zeros.index_add(0, rows[on], values[on]),
        )

    @property
    def isolated(self) -> Tensor:
        """Which nodes have no entry, (D,)."""
        return self.degrees == 0


@dataclass(frozen=True)
class GraphOperator:
    """diag(a) + c S W S - u u^T / m of a graph with adjacency W.

    Attributes:
        adjacency: W, its degrees and loops.
        diagonal_part: a, (D,).
        factor: c.
        scale: the diagonal of S, (D,); None is the identity.
        null_model: u, (D,), and m; None is without.
    """

    adjacency: Adjacency
    diagonal_part: Tensor
    factor: float
    scale: Tensor | None = None
    null_model: tuple[Tensor, float] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.diagonal_part), len(self.diagonal_part)

    @property
    def dtype(self) -> torch.dtype:
        """Of vectors and products."""
        return self.diagonal_part.dtype

    @property
    def device(self) -> torch.device:
        """Of vectors and products."""
        return self.diagonal_part.device

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the product with a vector (D,) or columns (D, S)."""
        if columns.ndim == 1:
            return (self @ columns.unsqueeze(1)).squeeze(1)
        scaled = columns
        if self.scale is not None:
            scaled = columns * self.scale[:, None]
        image = self.adjacency.matrix @ scaled
        image *= (
            self.factor if self.scale is None else self.factor * self.scale[:, None]
        )
        image.addcmul_(self.diagonal_part[:, None], columns)
        if self.null_model is not None:
            u_D, m = self.null_model
            image -= torch.outer(u_D, (u_D @ columns) / m)
        return image

    def adjoint(self) -> GraphOperator:
        """Return the transposed operator, which is the same."""
        return self

    def to_scipy(self) -> LinearOperator:
        """Return the same map for SciPy's solvers."""
        return scipy_operator(self)

    def diagonal(self) -> Tensor:
        """Return the diagonal, (D,)."""
        loops_D = self.factor * self.adjacency.loops
        if self.scale is not None:
            loops_D = loops_D * self.scale.square()
        diagonal_D = self.diagonal_part + loops_D
        if self.null_model is not None:
            u_D, m = self.null_model
            diagonal_D = diagonal_D - u_D.square() / m
        return diagonal_D

    def row_sums(self) -> Tensor:
        """Return bounds of the sums of the magnitudes of each row, (D,).

        They are these sums but for the modularity, whose two parts are bounded apart.
        """
        ones = self.scale
        if ones is None:
            ones = torch.ones_like(self.diagonal_part)
        within_D = self.adjacency.matrix @ ones[:, None]
        around_D = within_D.squeeze(1) - self.adjacency.loops * ones
        sums_D = abs(self.factor) * ones * around_D
        if self.null_model is not None:
            u_D, m = self.null_model
            sums_D = sums_D + u_D * (u_D.sum() - u_D) / m
        return sums_D + self.diagonal().abs()


def graph_operator(
    adjacency: Adjacency, name: str, *, isolated: str = "zero", r: float | None = None
) -> GraphOperator:
    """Return a matrix of a graph with adjacency W and degrees D = diag(d).

    Args:
        adjacency: W.
        name: `normalized_laplacian`, I - D^-1/2 W D^-1/2; `normalized_adjacency`,
            D^-1/2 W D^-1/2; `laplacian`, D - W; `signless_laplacian`, D + W;
            `adjacency`, W; `modularity`, W - d d^T / sum(d); `bethe_hessian`,
            (r^2 - 1) I - r W + D.
        isolated: eigenvalue of nodes without edges in the first two, zero or one.
        r: of the Bethe Hessian; None takes the root of <d^2> / <d> - 1.

    Returns:
        The operator; nothing of the size of W is stored.

    Raises:
        InputError: the Bethe Hessian of a graph with weights or loops is asked for.

    Reference:
        Chung (1997), Spectral Graph Theory; Newman (2006),
        doi:10.1103/PhysRevE.74.036104; Saade, Krzakala and Zdeborova (2014),
        arXiv:1406.1880.
    """
    d_D = adjacency.degrees
    if name in ("normalized_laplacian", "normalized_adjacency"):
        without_D = adjacency.isolated
        scale_D = torch.where(without_D, 0.0, d_D.rsqrt())
        is_laplacian = name == "normalized_laplacian"
        at_D = torch.full_like(d_D, float(is_laplacian))
        at_D[without_D] = float(isolated == "one")
        return GraphOperator(adjacency, at_D, -1.0 if is_laplacian else 1.0, scale_D)
    if name == "laplacian":
        return GraphOperator(adjacency, d_D, -1.0)
    if name == "signless_laplacian":
        return GraphOperator(adjacency, d_D, 1.0)
    if name == "bethe_hessian":
        return _bethe_hessian(adjacency, r)
    at_D = torch.zeros_like(d_D)
    null_model = (d_D, float(d_D.sum())) if name == "modularity" else None
    return GraphOperator(adjacency, at_D, 1.0, null_model=null_model)


def _bethe_hessian(adjacency: Adjacency, r: float | None) -> GraphOperator:
    d_D = adjacency.degrees
    is_simple = not adjacency.loops.any() and (adjacency.matrix.values() == 1).all()
    if not is_simple:
        raise InputError(
            "operator: expected a graph without weights and loops for bethe_hessian, "
            "got one with them. Take normalized_laplacian."
        )
    if r is None:
        r = float((d_D.square().mean() / d_D.mean() - 1).clamp_min(0).sqrt())
    return GraphOperator(adjacency, d_D + (r**2 - 1), -r)
