"""Operators of graphs without eigenvectors that are known exactly.

Letters: D nodes, Q coordinates once twins are united, R that are left, C components.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.graphs.structure import components
from curvflow.tasks.numerics.graphs.twins import Twins, twins
from curvflow.tasks.numerics.operators.base import scipy_operator
from curvflow.tasks.numerics.operators.graphs import GraphOperator, rows_tensor

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

Array = np.ndarray[Any, np.dtype[Any]]

# The eigenvalue that each component of more than one node has an eigenvector of, and
# whether this is the root of the degrees, or constant.
COMPONENTS = {
    "normalized_laplacian": (0.0, True),
    "normalized_adjacency": (1.0, True),
    "laplacian": (0.0, False),
}


@dataclass(frozen=True)
class Atoms:
    """Eigenvalues known exactly.

    Attributes:
        values: ascending, each once, (A,), float64.
        counts: how often each is taken out, (A,), int64.
    """

    values: Array
    counts: Array

    @property
    def total(self) -> int:
        """Number of these eigenvalues."""
        return int(self.counts.sum())

    def trace(self, f: Callable[[Array], Array]) -> Array:
        """Return the sum of f, which may add dimensions behind, over all of them."""
        return np.tensordot(self.counts.astype(np.float64), f(self.values), axes=1)


NO_ATOMS = Atoms(np.zeros(0), np.zeros(0, np.int64))


@dataclass(frozen=True)
class Complement:
    """An orthonormal basis B of the complement of known eigenvectors.

    Twins are united in the mean of their class. Of each component a Householder
    reflection turns a unit vector, of the coordinate that is then left out, into the
    eigenvector, and the other unit vectors into a basis of the rest.

    Attributes:
        coordinate: of each node, (D,).
        share: of a node in its coordinate, (D,).
        gathered: the entries of `share` by coordinates, CSR, (Q, D); None without
            twins, where a coordinate is a node.
        kept: coordinates that are left, (R,).
        along: vectors of the reflections, CSR, (C, Q).
        part: of each coordinate, the number of its reflection, (Q,).
        normal: the entries of `along` by coordinates, (Q,); 0 without a reflection.
        factor: of each reflection, (C,).
    """

    coordinate: Tensor
    share: Tensor
    gathered: Tensor | None
    kept: Tensor
    along: Tensor
    part: Tensor
    normal: Tensor
    factor: Tensor

    def up(self, columns: Tensor) -> Tensor:
        """Return B times columns (R, S), of D rows."""
        if len(self.factor):
            whole = columns.new_zeros(len(self.part), columns.shape[1])
            whole[self.kept] = columns
            columns = self._reflected(whole)
        if self.gathered is None:
            return columns
        return columns[self.coordinate].mul_(self.share[:, None])

    def down(self, columns: Tensor) -> Tensor:
        """Return the transpose of B times columns (D, S), of R rows."""
        if self.gathered is not None:
            columns = self.gathered @ columns
        return self._reflected(columns)[self.kept] if len(self.factor) else columns

    def _reflected(self, whole: Tensor) -> Tensor:
        lengths = (self.along @ whole) * self.factor[:, None]
        return whole.addcmul(self.normal[:, None], lengths[self.part], value=-1)


@dataclass(frozen=True)
class Deflated:
    """B'AB, which has the eigenvalues of A but for the atoms.

    Attributes:
        operator: A, (D, D).
        complement: B, (D, R).
        atoms: eigenvalues taken out.
    """

    operator: GraphOperator
    complement: Complement
    atoms: Atoms

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.complement.kept), len(self.complement.kept)

    @property
    def dtype(self) -> torch.dtype:
        """Of vectors and products."""
        return self.operator.dtype

    @property
    def device(self) -> torch.device:
        """Of vectors and products."""
        return self.operator.device

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the product with a vector (R,) or columns (R, S)."""
        if columns.ndim == 1:
            return (self @ columns.unsqueeze(1)).squeeze(1)
        return self.complement.down(self.operator @ self.complement.up(columns))

    def adjoint(self) -> Deflated:
        """Return the transposed operator, which is the same."""
        return self

    def to_scipy(self) -> LinearOperator:
        """Return the same map for SciPy's solvers."""
        return scipy_operator(self)


def deflated(operator: GraphOperator, name: str, what: Collection[str]) -> Deflated:
    """Take eigenvectors that are known out of an operator of a graph.

    Twins u and v of degree d, with loops of weight l and joined by one of weight s,
    have W(e_u - e_v) = (l - s)(e_u - e_v) and equal degrees, so that e_u - e_v is an
    eigenvector of every operator; the null model of the modularity does not see it. A
    component has one eigenvector of the normalized operators and of the Laplacian.
    At least one eigenvalue is left, though it is known.

    Args:
        operator: A.
        name: which operator it is.
        what: `components`, `twins` or both.

    Returns:
        The operator on the rest, and the eigenvalues taken out.

    Raises:
        InputError: components have no eigenvector of this operator.
    """
    adjacency = operator.adjacency
    indptr, indices = adjacency.starts.cpu().numpy(), adjacency.columns.cpu().numpy()
    weights = None
    if adjacency.weights is not None:
        weights = adjacency.weights.double().cpu().numpy()
    taken: list[tuple[Array, Array]] = []
    size = len(indptr) - 1
    first, share = np.arange(size), np.ones(size)
    if "twins" in what:
        classes = twins(indptr, indices, weights)
        heads = classes.nodes[np.flatnonzero(np.diff(classes.number, prepend=-1))]
        first[classes.nodes] = heads[classes.number]
        share[classes.nodes] = classes.counts[classes.number] ** -0.5
        taken.append((_of_twins(operator, classes, heads), classes.counts - 1))
    is_first = first == np.arange(size)
    coordinate = (np.cumsum(is_first) - 1)[first]
    labels = np.full(int(is_first.sum()), -1)
    vectors: Array = np.zeros(len(labels))
    if "components" in what:
        labels = components(indptr, indices)[is_first].astype(np.int64)
        labels, values = _of_components(operator, name, labels, is_first)
        root = _eigenvector(operator, name)
        vectors = np.bincount(coordinate, share * root)
        taken.append((values, np.ones(len(values), np.int64)))
    complement = _complement(operator, coordinate, share, labels, vectors)
    return Deflated(operator, complement, _united(taken))


def _of_twins(operator: GraphOperator, classes: Twins, heads: Array) -> Array:
    """Return the eigenvalue of the differences within each class."""
    at = torch.as_tensor(heads, device=operator.device)
    diagonal = operator.diagonal_part[at].double().cpu().numpy()
    among = operator.factor * (classes.loops - classes.joined)
    if operator.scale is not None:
        among = among / operator.adjacency.degrees[at].double().cpu().numpy()
    eigenvalues: Array = diagonal + among
    return eigenvalues


def _eigenvector(operator: GraphOperator, name: str) -> Array:
    """Return the entries of the eigenvector of each component, of any length, (D,)."""
    degrees = operator.adjacency.degrees.double().cpu().numpy()
    _, is_root = COMPONENTS[name]
    return np.where(degrees > 0, np.sqrt(degrees), 1.0) if is_root else 0 * degrees + 1


def _of_components(
    operator: GraphOperator, name: str, labels: Array, is_first: Array
) -> tuple[Array, Array]:
    """Return the components to take out, -1 for none, and their eigenvalues.

    Raises:
        InputError: components have no eigenvector of this operator.
    """
    if name not in COMPONENTS:
        raise InputError(
            f"deflate: components cannot be combined with operator {name}, of which "
            "they are no eigenvectors. Take twins alone."
        )
    value, _ = COMPONENTS[name]
    alone = operator.adjacency.isolated.cpu().numpy()[is_first]
    diagonal = operator.diagonal_part.double().cpu().numpy()[is_first]
    _, heads = np.unique(labels, return_index=True)
    values = np.where(alone[heads], diagonal[heads], value)
    if len(values) == len(labels):  # nothing would be left
        labels, values = np.where(labels == labels.max(), -1, labels), values[:-1]
    return labels, values


def _complement(
    operator: GraphOperator,
    coordinate: Array,
    share: Array,
    labels: Array,
    vectors: Array,
) -> Complement:
    """Return the basis of the complement.

    Args:
        operator: whose device and precision are taken.
        coordinate: of each node, (D,).
        share: of a node in its coordinate, (D,).
        labels: the component to take out of each coordinate, -1 for none, (Q,).
        vectors: entries of the eigenvectors of components, of any length, (Q,).
    """
    count, inside = len(labels), np.flatnonzero(labels >= 0)
    part = labels[inside]
    _, heads = np.unique(part, return_index=True)
    heads = inside[heads]
    normal = np.zeros(count)
    lengths = np.sqrt(np.bincount(part, vectors[inside] ** 2))
    normal[inside] = vectors[inside] / lengths[part]
    normal[heads] += 1  # away from cancellation, as entries are positive
    kept = np.ones(count, dtype=bool)
    kept[heads] = False
    nodes = np.arange(len(coordinate))
    numbers = (coordinate, np.flatnonzero(kept), np.maximum(labels, 0))
    coordinate_D, kept_R, part_Q = (_on(operator, array) for array in numbers)
    precise = (share, normal, 1 / normal[heads])
    share_D, normal_Q, factor_C = (_on(operator, a).to(operator.dtype) for a in precise)
    return Complement(
        coordinate=coordinate_D,
        share=share_D,
        gathered=_rows(operator, coordinate, nodes, share, (count, len(nodes)))
        if count < len(nodes)
        else None,
        kept=kept_R,
        along=_rows(operator, part, inside, normal[inside], (len(heads), count)),
        part=part_Q,
        normal=normal_Q,
        factor=factor_C,
    )


def _on(operator: GraphOperator, array: Array) -> Tensor:
    return torch.as_tensor(array, device=operator.device)


def _rows(
    operator: GraphOperator,
    rows: Array,
    columns: Array,
    values: Array,
    shape: tuple[int, int],
) -> Tensor:
    """Return a sparse tensor of entries in any order, columns ascending in a row."""
    order = np.argsort(rows, kind="stable")
    starts = np.searchsorted(rows[order], np.arange(shape[0] + 1))
    within = _on(operator, values[order]).to(operator.dtype)
    return rows_tensor(
        _on(operator, starts), _on(operator, columns[order]), within, shape
    )


def _united(parts: list[tuple[Array, Array]]) -> Atoms:
    if not parts:
        return NO_ATOMS
    values, counts = (np.concatenate(several) for several in zip(*parts, strict=True))
    distinct, which = np.unique(values, return_inverse=True)
    sums = np.bincount(which, counts, minlength=len(distinct)).astype(np.int64)
    return Atoms(distinct, sums)
