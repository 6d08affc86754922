"""Matrices of graphs, multiplied by the rows of neighbours and the degrees."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
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


# Entries that are looked at together, which bounds memory.
CHUNK = 1 << 20


@dataclass(frozen=True)
class Adjacency:
    """The adjacency W of an undirected graph, its degrees and its loops.

    Attributes:
        starts: where each row begins, (D + 1,), int32.
        columns: neighbours, (E,), int32.
        weights: of these entries, (E,); None where all are 1.
        degrees: d_i, the sum of row i, (D,).
        loops: the diagonal of W, (D,).
    """

    starts: Tensor
    columns: Tensor
    weights: Tensor | None
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
            indices: neighbours, an edge in the rows of both its ends; those of int32
                are not copied.
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
        starts, columns = indptr.int(), indices.int()
        if drop_isolated:
            stay = starts.diff() > 0
            columns = (stay.cumsum(0, dtype=torch.int32) - 1)[columns]
            starts = torch.cat([starts[:1], starts[1:][stay]])
        if weights is not None:
            weights = None if bool((weights == 1).all()) else weights.to(dtype)
        counts = starts.diff()
        degrees = counts.to(dtype)
        loops = torch.zeros_like(degrees)
        for rows, entries in _row_blocks(starts):
            within = torch.repeat_interleave(counts[rows])
            on = within + rows.start == columns[entries]
            at = columns[entries][on]
            if weights is None:
                loops[at] = 1.0
            else:
                loops[at] = weights[entries][on]
                degrees[rows] = 0.0
                degrees[rows].index_add_(0, within, weights[entries])
        return cls(starts, columns, weights, degrees, loops)

    @property
    def isolated(self) -> Tensor:
        """True for nodes that have no entry, (D,)."""
        return self.degrees == 0

    def matrix(self, factor: float = 1.0, scale: Tensor | None = None) -> Tensor:
        """Return c S W S in PyTorch's CSR form, (D, D), whose rows are these.

        Args:
            factor: c.
            scale: the diagonal of S, (D,); None is the identity.
        """
        size, dtype = len(self.degrees), self.degrees.dtype
        values = torch.full(self.columns.shape, factor, dtype=dtype).to(
            self.columns.device
        )
        if self.weights is not None:
            values *= self.weights
        counts = self.starts.diff()
        for rows, entries in _row_blocks(self.starts) if scale is not None else ():
            assert scale is not None
            values[entries] *= torch.repeat_interleave(scale[rows], counts[rows])
            values[entries] *= scale[self.columns[entries]]
        return rows_tensor(self.starts, self.columns, values, (size, size))


def _row_blocks(starts: Tensor) -> Iterator[tuple[slice, slice]]:
    """Yield consecutive rows of some `CHUNK` entries, or one that has more; and these.

    Args:
        starts: where each row begins, (D + 1,).
    """
    size, row = len(starts) - 1, 0
    while row < size:
        begin = int(starts[row])
        # A product of small numbers would overflow int32.
        last = min(begin + CHUNK, int(starts[-1]))
        rows = torch.searchsorted(starts, last, right=True, out_int32=True)
        stop = min(max(int(rows) - 1, row + 1), size)
        yield slice(row, stop), slice(begin, int(starts[stop]))
        row = stop


# Part of the rows that may be added one by one to what all have on the diagonal.
FEW = 1 / 16


@dataclass(frozen=True)
class _Parts:
    """A sparse matrix, and the number to be added to its diagonal.

    Attributes:
        matrix: in PyTorch's CSR form, (D, D).
        common: added to all of the diagonal.
        rows: those that more is added to, (R,).
        further: what that is, (R,).
    """

    matrix: Tensor
    common: float
    rows: Tensor
    further: Tensor


def _with_diagonal(matrix: Tensor, diagonal_D: Tensor) -> Tensor:
    """Return compressed rows with a diagonal added."""
    from scipy import sparse

    parts = (matrix.values(), matrix.col_indices(), matrix.crow_indices())
    size = len(diagonal_D)
    whole = sparse.csr_array(tuple(p.cpu().numpy() for p in parts), (size, size))
    whole = whole + sparse.diags_array(diagonal_D.cpu().numpy(), format="csr")
    rows = (whole.indptr, whole.indices, whole.data)
    starts, columns, values = (torch.from_numpy(p).to(matrix.device) for p in rows)
    return rows_tensor(starts, columns, values, (size, size))


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

    @cached_property
    def _parts(self) -> _Parts:
        """Parts by which it multiplies, made at the first product."""
        a_D = self.diagonal_part
        common = float(a_D[int(self.adjacency.starts.diff().argmax())])
        rest_D = a_D - common
        rows = rest_D.nonzero().squeeze(1)
        matrix = self.adjacency.matrix(self.factor, self.scale)
        if len(rows) <= FEW * len(a_D):
            return _Parts(matrix, common, rows, rest_D[rows])
        # A pass over the columns takes as long as the entries of a diagonal.
        return _Parts(_with_diagonal(matrix, a_D), 0.0, rows[:0], a_D[:0])

    @property
    def common(self) -> float:
        """Number added to all of the diagonal in a separate pass."""
        return self._parts.common

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
        image = torch.empty(columns.shape, dtype=self.dtype, device=self.device)
        self.multiply_into(columns, image)
        return image

    def multiply_into(self, columns: Tensor, into: Tensor) -> None:
        """Write the product with columns (D, S) into memory like them."""
        self._multiply(columns, into, 0.0, 1.0, 0.0)

    def recur_into(
        self, columns: Tensor, into: Tensor, factor: float, shift: float
    ) -> None:
        """Replace `into` by factor A columns + shift columns - into, all (D, S)."""
        self._multiply(columns, into, -1.0, factor, shift)

    def _multiply(
        self, columns: Tensor, into: Tensor, beta: float, factor: float, shift: float
    ) -> None:
        parts = self._parts
        torch.addmm(into, parts.matrix, columns, beta=beta, alpha=factor, out=into)
        if alpha := factor * parts.common + shift:
            into.add_(columns, alpha=alpha)
        if len(parts.rows):
            further = factor * parts.further[:, None] * columns[parts.rows]
            into.index_add_(0, parts.rows, further)
        if self.null_model is not None:
            u_D, m = self.null_model
            into.addmm_(u_D[:, None], (u_D @ columns)[None] / m, alpha=-factor)

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
        loops_D = abs(self.factor) * self.adjacency.loops
        if self.scale is None:
            within_D = abs(self.factor) * self.adjacency.degrees
        else:
            loops_D = loops_D * self.scale.square()
            W = self.adjacency.matrix(abs(self.factor), self.scale)
            within_D = (W @ torch.ones_like(self.scale)[:, None]).squeeze(1)
        sums_D = within_D - loops_D
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
        The operator; in addition to W it has one number for each of its entries.

    Raises:
        InputError: the Bethe Hessian of a graph with weights or loops is requested.

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
    if adjacency.weights is not None or adjacency.loops.any():
        raise InputError(
            "operator: expected a graph without weights and loops for bethe_hessian, "
            "got one with them. Take normalized_laplacian."
        )
    if r is None:
        r = float((d_D.square().mean() / d_D.mean() - 1).clamp_min(0).sqrt())
    return GraphOperator(adjacency, d_D + (r**2 - 1), -r)
