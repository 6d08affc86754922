"""Blocks of curvature matrices, by eigenpairs or by two factors, for a batch of models.

Every block is (U x V) diag(values) (U x V)' with orthogonal U and V: of a Kronecker
product, whose values are products; with corrected values; of a dense block, where V is
1; of a diagonal, where both are. Of a product the eigenpairs are found when first asked
for: to multiply with it, and with a factored inverse, takes none.

Letters of shapes, besides M models and D parameters: G groups, O rows, I columns of a
group of a weight, P = G O I, S columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

Pi = Literal["trace", "frobenius", "spectral"]

# Columns up to which those of all rows are multiplied at once: row by row the matrix is
# read again for each, for little arithmetic. Of more, rows apart need no copies.
FEW_COLUMNS = 63


@dataclass(frozen=True)
class Block(ABC):
    """A symmetric matrix on some of the parameters.

    Attributes:
        name: of the weight, or of all tensors joined by " and ".
        places: of its P parameters in a vector, row by row, or what finds them: of
            large blocks they take as long as the block, and may never be needed.
    """

    name: str
    places: Tensor | Callable[[], Tensor]

    @cached_property
    def columns(self) -> Tensor:
        """Places of its parameters in a vector, (P,)."""
        return self.places if isinstance(self.places, Tensor) else self.places()

    @cached_property
    def span(self) -> slice | None:
        """Its places, where they follow each other; else None."""
        columns = self.columns
        if columns.is_meta or not bool((columns.diff() == 1).all()):
            return None
        start = int(columns[0])
        return slice(start, start + len(columns))

    @property
    @abstractmethod
    def eigenpairs(self) -> Eigenpairs:
        """The same matrix by its eigenpairs."""

    @property
    @abstractmethod
    def diagonal(self) -> Tensor:
        """The diagonal, (M, P)."""

    @property
    @abstractmethod
    def trace(self) -> Tensor:
        """The trace, (M,)."""

    @abstractmethod
    def times(self, vectors_MPS: Tensor) -> Tensor:
        """Return the products with columns, (M, P, S)."""

    @abstractmethod
    def inverse(self, damping_M: Tensor, pi: Pi | float | None) -> Block:
        """Return the damped inverse.

        Args:
            damping_M: of each model.
            pi: how the root of the damping is split between two factors; None inverts
                the damped block itself, as do blocks that are no products.

        Returns:
            The inverse, not finite where the damped block is singular.

        Reference:
            Martens and Grosse (2015), arXiv:1503.05671, section 6.3, for the factored
            form and the split by traces; Botev (2020), section 4.4.2.
        """

    @abstractmethod
    def select(self, models: Tensor) -> Block:
        """Return the block of some of the models, by their indices (m,)."""


@dataclass(frozen=True)
class Eigenpairs(Block):
    """A block by its eigenpairs.

    Attributes:
        left: eigenvectors of the rows as columns, (M, G, O, O).
        right: eigenvectors of the columns, (M, G, I, I).
        values: eigenvalues, (M, G, O, I).
        left_values: eigenvalues of the left factor, (M, G, O); None where the values
            are no products.
        right_values: eigenvalues of the right factor, (M, G, I).
    """

    left: Tensor
    right: Tensor
    values: Tensor
    left_values: Tensor | None = None
    right_values: Tensor | None = None

    @property
    def eigenpairs(self) -> Eigenpairs:
        """These."""
        return self

    @property
    def diagonal(self) -> Tensor:
        """The diagonal, (M, P)."""
        entries = self.left.square() @ self.values @ self.right.square().mT
        return entries.flatten(1)

    @property
    def trace(self) -> Tensor:
        """The trace, (M,)."""
        return self.values.sum((1, 2, 3))

    def times(self, vectors_MPS: Tensor) -> Tensor:
        """Return the products with columns, (M, P, S)."""
        return self.scaled(vectors_MPS, self.values)

    def scaled(self, vectors_MPS: Tensor, values_MGOI: Tensor) -> Tensor:
        """Return products with the matrix of the same eigenvectors and other values."""
        count = vectors_MPS.shape[2]
        along = self.left.mT @ _rows_first(vectors_MPS, self.left)
        if _is_by_rows(self.left, count):
            turned = _by_rows(self.right.mT, along, count)
            each = torch.unflatten(turned, 3, (-1, count))
            each *= values_MGOI.unsqueeze(4)
            back = self.left @ _by_rows(self.right, turned, count)
            return back.reshape_as(vectors_MPS)
        turned = self.right.mT @ _swapped(along, count)  # M, G, I, O S
        each = torch.unflatten(turned, 3, (-1, count)) * values_MGOI.mT.unsqueeze(4)
        back = self.left @ _swapped(self.right @ each.flatten(3), count)
        return back.reshape_as(vectors_MPS)

    def inverse(self, damping_M: Tensor, pi: Pi | float | None) -> Eigenpairs:
        """Return the damped inverse; see `Block.inverse`."""
        values = self.inverted(damping_M, pi)
        return replace(self, values=values, left_values=None, right_values=None)

    def inverted(self, damping_M: Tensor, pi: Pi | float | None) -> Tensor:
        """Return the eigenvalues of the damped inverse, (M, G, O, I)."""
        if pi is None or self.left_values is None or self.right_values is None:
            return 1 / damped_values(self.values, damping_M[:, None, None, None])
        sizes = [_size(each, pi) for each in (self.right_values, self.left_values)]
        left_MG1, right_MG1 = _dampings(damping_M, pi, *sizes)
        left_MGO = damped_values(self.left_values, left_MG1)
        right_MGI = damped_values(self.right_values, right_MG1)
        return 1 / (left_MGO.unsqueeze(3) * right_MGI.unsqueeze(2))

    @property
    def left_factor(self) -> Tensor:
        """The factor of the rows, (M, G, O, O), of a product of two."""
        return _composed(self.left, self.left_values)

    @property
    def right_factor(self) -> Tensor:
        """The factor of the columns, (M, G, I, I), of a product of two."""
        return _composed(self.right, self.right_values)

    def select(self, models: Tensor) -> Eigenpairs:
        """Return the block of some of the models, by their indices (m,)."""

        def chosen(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor[models]

        return replace(
            self,
            left=self.left[models],
            right=self.right[models],
            values=self.values[models],
            left_values=chosen(self.left_values),
            right_values=chosen(self.right_values),
        )


@dataclass(frozen=True)
class Product(Block):
    """A block that is a Kronecker product of two factors.

    Attributes:
        left_factor: of the rows, (M, G, O, O), symmetric up to rounding.
        right_factor: of the columns, (M, G, I, I), positive semidefinite.
        is_semidefinite: so is the left factor, and is below zero by rounding alone.
    """

    left_factor: Tensor
    right_factor: Tensor
    is_semidefinite: bool = True

    @cached_property
    def eigenpairs(self) -> Eigenpairs:
        """The same matrix by its eigenpairs, found once."""
        left_values, left_vectors = decomposed(self.left_factor)
        right_values, right_vectors = decomposed(self.right_factor)
        right_values = right_values.clamp(min=0)
        both: tuple[Tensor | None, Tensor | None] = None, None
        if self.is_semidefinite:
            left_values = left_values.clamp(min=0)
            both = left_values, right_values
        values = left_values.unsqueeze(3) * right_values.unsqueeze(2)
        given = self.name, self.places, left_vectors, right_vectors, values
        return Eigenpairs(*given, *both)

    @property
    def diagonal(self) -> Tensor:
        """The diagonal, (M, P)."""
        left, right = (each.diagonal(dim1=-2, dim2=-1) for each in self._both)
        return (left.unsqueeze(3) * right.unsqueeze(2)).flatten(1)

    @cached_property
    def trace(self) -> Tensor:
        """The trace, (M,)."""
        left, right = (each.diagonal(dim1=-2, dim2=-1).sum(2) for each in self._both)
        return (left * right).sum(1)

    @property
    def _both(self) -> tuple[Tensor, Tensor]:
        return self.left_factor, self.right_factor

    def times(self, vectors_MPS: Tensor) -> Tensor:
        """Return the products with columns, (M, P, S)."""
        count = vectors_MPS.shape[2]
        along = self.left_factor @ _rows_first(vectors_MPS, self.left_factor)
        if _is_by_rows(self.left_factor, count):
            product = _by_rows(self.right_factor, along, count)
            return product.reshape_as(vectors_MPS)
        turned = self.right_factor @ _swapped(along, count)
        return _swapped(turned, count).reshape_as(vectors_MPS)

    def inverse(self, damping_M: Tensor, pi: Pi | float | None) -> Block:
        """Return the damped inverse; see `Block.inverse`."""
        if pi is None or not self.is_semidefinite:
            return self.eigenpairs.inverse(damping_M, pi)
        sizes = [_factor_size(each, pi) for each in reversed(self._both)]
        left_MG1, right_MG1 = _dampings(damping_M, pi, *sizes)
        left = _inverted(self.left_factor, left_MG1)
        right = _inverted(self.right_factor, right_MG1)
        return replace(self, left_factor=left, right_factor=right)

    def select(self, models: Tensor) -> Block:
        """Return the block of some of the models, by their indices (m,)."""
        if "eigenpairs" in self.__dict__:  # found already
            return self.eigenpairs.select(models)
        left, right = (factor[models] for factor in self._both)
        return replace(self, left_factor=left, right_factor=right)


def _composed(vectors: Tensor, values: Tensor | None) -> Tensor:
    assert values is not None
    return (vectors * values.unsqueeze(2)) @ vectors.mT


def _rows_first(vectors_MPS: Tensor, left: Tensor) -> Tensor:
    """Return columns as rows of blocks, (M, G, O, I S)."""
    models, groups, rows, _ = left.shape
    return vectors_MPS.reshape(models, groups, rows, -1)


def _is_by_rows(left: Tensor, count: int) -> bool:
    """Return whether a single block, of one model, meets many columns."""
    return len(left) == left.shape[1] == 1 and count > FEW_COLUMNS


def _by_rows(right: Tensor, parts: Tensor, count: int) -> Tensor:
    """Return products with a matrix (1, 1, I, I) of each row of (1, 1, O, I S).

    Of a single block the matrix is not copied for each row, nor columns swapped.
    """
    rows = torch.unflatten(parts[0, 0], 1, (-1, count))
    products = torch.bmm(right[0, 0].expand(len(rows), -1, -1), rows)
    return products.view_as(parts)


def _swapped(parts: Tensor, count: int) -> Tensor:
    """Return (M, G, I, O S) of (M, G, O, I S) of S columns, or the reverse.

    Columns stay side by side, so that both sides of a block are products of two
    matrices, of which none is copied for each column.
    """
    return torch.unflatten(parts, 3, (-1, count)).transpose(2, 3).flatten(3)


def damped_values(
    values: Tensor, damping: Tensor, precision: torch.dtype | None = None
) -> Tensor:
    """Return eigenvalues with the damping, and zero where without it they are none.

    Eigenvalues that are zero come out as roundings of the largest, which are no numbers
    to divide by.

    Args:
        values: of matrices, or pivots, (M, G, ...).
        damping: added, of a shape that expands to theirs.
        precision: of the matrices; None for that of the values.

    Returns:
        The sums.
    """
    inner = tuple(range(2, values.ndim))
    eps = sum(values.shape[2:]) * torch.finfo(precision or values.dtype).eps
    is_none = values.abs() <= eps * values.abs().amax(inner, keepdim=True)
    return (values + damping).masked_fill(is_none & (damping == 0), 0)


def _inverted(factor: Tensor, damping_MG1: Tensor) -> Tensor:
    """Return the inverses of damped semidefinite factors, (M, G, n, n)."""
    if _is_half(factor):
        return _inverted(factor.float(), damping_MG1.float()).to(factor)
    eye = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    damped = (factor + factor.mT) / 2 + damping_MG1.unsqueeze(3) * eye
    root, failed_MG = torch.linalg.cholesky_ex(damped)
    pivots_MGN = root.diagonal(dim1=-2, dim2=-1).square()
    is_singular = (damped_values(pivots_MGN, damping_MG1) == 0).any(2)
    lost_MG = (failed_MG > 0) | ~torch.isfinite(root).flatten(2).all(2) | is_singular
    inverse = torch.cholesky_inverse(torch.where(lost_MG[..., None, None], eye, root))
    if lost_MG.any():  # as good as singular, or not finite: each by its eigenvalues
        values, vectors = decomposed(factor[lost_MG])
        added_MG1 = damping_MG1[lost_MG][None]
        divisors = damped_values(values.clamp(min=0)[None], added_MG1)[0]
        inverse[lost_MG] = (vectors / divisors.unsqueeze(1)) @ vectors.mT
    return inverse


def _dampings(
    damping_M: Tensor, pi: Pi | float, right_MG: Tensor, left_MG: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the dampings of the left and of the right factor, (M, G, 1) each."""
    split_MG = balance(right_MG, left_MG)
    if not isinstance(pi, str):
        split_MG = torch.full_like(split_MG, float(pi))
    root_M1 = damping_M.sqrt().unsqueeze(1)
    return (root_M1 / split_MG).unsqueeze(2), (root_M1 * split_MG).unsqueeze(2)


def balance(right_MG: Tensor, left_MG: Tensor) -> Tensor:
    """Return pi of two factors by their sizes; 1 where one has none or no number.

    Args:
        right_MG: size of the right factor, per row.
        left_MG: the same of the left one.
    """
    ratio_MG = (right_MG / left_MG).sqrt()
    usable_MG = torch.isfinite(ratio_MG) & (ratio_MG > 0)
    return torch.where(usable_MG, ratio_MG, 1.0)


def _size(values_MGK: Tensor, norm: Pi | float) -> Tensor:
    """Return a norm of factors, per row so that sizes of factors do not matter."""
    match norm:
        case "trace":
            return values_MGK.mean(2)
        case "frobenius":
            return values_MGK.square().mean(2).sqrt()
    return values_MGK.amax(2)


def _factor_size(factor: Tensor, norm: Pi | float) -> Tensor:
    """Return the same norm of factors that are not taken apart."""
    match norm:
        case "trace":
            return factor.diagonal(dim1=-2, dim2=-1).mean(2)
        case "frobenius":
            return factor.square().sum((2, 3)).div(factor.shape[-1]).sqrt()
    return decomposed(factor)[0][..., -1]


def decomposed(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues and eigenvectors of positive semidefinite matrices.

    Args:
        matrices: (..., n, n), symmetric up to rounding.

    Returns:
        Values (..., n), ascending, those below zero by rounding set to zero, and
        vectors as columns; of a matrix that is not finite NaN.
    """
    is_finite = torch.isfinite(matrices).flatten(-2).all(-1)[..., None, None]
    symmetric = torch.where(is_finite, matrices, 0.0)
    symmetric = (symmetric + symmetric.mT).div_(2)
    # Where memory is counted, that of LAPACK, which is in no tensor, for each model.
    size = 2 * len(matrices) * matrices.shape[-1] ** 2
    work = matrices.new_empty(size) if matrices.is_meta else None
    values, vectors = _eigh(symmetric)
    del work
    values = values.masked_fill(~is_finite.squeeze(-1), torch.nan)
    return values, vectors


def _is_half(tensor: Tensor) -> bool:
    return tensor.dtype.itemsize < torch.float32.itemsize


def _eigh(symmetric: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenpairs; in double precision of a matrix for which single does not do.

    LAPACK knows no half precision, and may not converge in single precision. Each
    matrix is tried by itself then, so that what it gets does not depend on others.
    """
    if _is_half(symmetric):
        values, vectors = _eigh(symmetric.float())
        return values.to(symmetric), vectors.to(symmetric)
    with suppress(torch.linalg.LinAlgError):  # type: ignore[attr-defined] # not listed
        values, vectors = torch.linalg.eigh(symmetric)
        return values, vectors
    if symmetric.ndim == 2:
        values, vectors = torch.linalg.eigh(symmetric.double())
        return values.to(symmetric), vectors.to(symmetric)
    each = [_eigh(matrix) for matrix in symmetric]
    return torch.stack([v for v, _ in each]), torch.stack([u for _, u in each])


def dense_block(name: str, columns: Tensor, matrices_MPP: Tensor) -> Eigenpairs:
    """Return the block of a symmetric matrix (M, P, P), definite or not."""
    values_MP, vectors_MPP = decomposed(matrices_MPP)
    unit = torch.ones_like(values_MP[:, :1])[..., None, None]
    return Eigenpairs(
        name, columns, vectors_MPP.unsqueeze(1), unit, values_MP[:, None, :, None]
    )


def diagonal_block(name: str, columns: Tensor, values_MP: Tensor) -> Eigenpairs:
    """Return the block of a diagonal (M, P)."""
    ones = torch.ones_like(values_MP)[..., None, None]
    return Eigenpairs(name, columns, ones, ones, values_MP[..., None, None])
