"""Operators made of operators: sums, shifts, blocks, and preconditioned ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.operators.base import (
    Affine,
    BatchedOperator,
    as_sample_mean,
)

# A number for all models, or one for each, (M,).
Factor = float | Tensor


def _each(factor: Factor, models: Tensor) -> Factor:
    return factor[models] if isinstance(factor, Tensor) else factor


def _broad(factor: Factor, columns: Tensor) -> Factor:
    if not isinstance(factor, Tensor):
        return factor
    return factor.to(columns).view(-1, *[1] * (columns.ndim - 1))


class BatchedSum:
    """The operator sum_i c_i A_i + c I, of the c_i of each model."""

    def __init__(
        self, terms: Sequence[tuple[Factor, BatchedOperator]], shift: Factor = 0.0
    ) -> None:
        """Take the parts.

        Args:
            terms: factors c_i and operators A_i of one shape, at least one; a factor
                is a number, or one for each model, (M,).
            shift: c.
        """
        self._terms, self._shift = list(terms), shift
        first = self._terms[0][1]
        self.shape, self.dtype, self.device = first.shape, first.dtype, first.device

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with vectors (M, D) or columns (M, D, S)."""
        total = _broad(self._shift, columns) * columns
        for factor, operator in self._terms:
            total = total + _broad(factor, columns) * (operator @ columns)
        return total

    @property
    def single(self) -> Affine | None:
        """A multiple and a shift of one map, if it is no more than that."""
        (factor, operator), *others = self._terms
        of: Affine | None = getattr(operator, "single", None)
        if others or of is None:
            return None
        c, s = float(factor), float(self._shift)  # of one model
        return Affine(of.operator, c * of.factor, c * of.shift + s)

    def select(self, models: Tensor) -> BatchedSum:
        """Return the operator of some of the models, by their indices (m,)."""
        terms = [(_each(c, models), a.select(models)) for c, a in self._terms]
        return BatchedSum(terms, _each(self._shift, models))


class OuterProduct:
    """The operator g g' of a vector g of each model."""

    def __init__(self, vectors_MD: Tensor) -> None:
        """Take the vectors g."""
        self._vectors_MD = vectors_MD
        models, size = vectors_MD.shape
        self.shape = (models, size, size)
        self.dtype, self.device = vectors_MD.dtype, vectors_MD.device

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with vectors (M, D) or columns (M, D, S)."""
        ahead = self._vectors_MD
        if columns.ndim == 3:
            ahead = ahead.unsqueeze(-1)
        return ahead * (ahead * columns).sum(1, keepdim=True)

    def select(self, models: Tensor) -> OuterProduct:
        """Return the operator of some of the models, by their indices (m,)."""
        return OuterProduct(self._vectors_MD[models])


def scaled(operator: BatchedOperator, factor: Factor) -> BatchedSum:
    """Return c A.

    Args:
        operator: A.
        factor: c, a number, or one for each model, (M,).

    Examples:
        >>> from curvflow.tasks.numerics import BatchedDense
        >>> A = BatchedDense(torch.ones(2, 1, 1))
        >>> (scaled(A, torch.tensor([2.0, 3.0])) @ torch.ones(2, 1, 1)).flatten()
        tensor([2., 3.])
    """
    return BatchedSum([(factor, operator)])


def shifted(operator: BatchedOperator, shift: Factor) -> BatchedSum:
    """Return A + c I.

    Args:
        operator: A.
        shift: c, a number, or one for each model, (M,).

    Examples:
        >>> from curvflow.tasks.numerics import BatchedDense
        >>> A = BatchedDense(torch.ones(2, 1, 1))
        >>> (shifted(A, 0.5) @ torch.ones(2, 1, 1)).flatten()
        tensor([1.5000, 1.5000])
    """
    return BatchedSum([(1.0, operator)], shift)


def added(*operators: BatchedOperator) -> BatchedSum:
    """Return the sum of operators of one shape.

    Args:
        operators: of the same models.

    Examples:
        >>> from curvflow.tasks.numerics import BatchedDense
        >>> A = BatchedDense(torch.ones(2, 1, 1))
        >>> (added(A, A) @ torch.ones(2, 1, 1)).flatten()
        tensor([2., 2.])
    """
    return BatchedSum([(1.0, operator) for operator in operators])


class PrincipalBlock:
    """The rows and the same columns of an operator, as of some named layers."""

    def __init__(self, operator: BatchedOperator, index_B: Tensor) -> None:
        """Take the operator (M, D, D), and the B rows and columns wanted."""
        self._operator, self._index_B = operator, index_B.to(operator.device)
        self.shape = (operator.shape[0], len(index_B), len(index_B))
        self.dtype, self.device = operator.dtype, operator.device

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with vectors (M, B) or columns (M, B, S)."""
        models, _, *rest = columns.shape
        whole = columns.new_zeros(models, self._operator.shape[1], *rest)
        whole[:, self._index_B] = columns
        return (self._operator @ whole)[:, self._index_B]

    @property
    def num_samples(self) -> int:
        """Samples that the operator is a mean over."""
        return as_sample_mean(self._operator).num_samples

    def of_samples(self, models: Tensor, rows: Tensor) -> PrincipalBlock:
        """Return operators of models (R,): the means over samples (R, B)."""
        few = as_sample_mean(self._operator).of_samples(models, rows)
        return PrincipalBlock(few, self._index_B)

    def select(self, models: Tensor) -> PrincipalBlock:
        """Return the operator of some of the models, by their indices (m,)."""
        return PrincipalBlock(self._operator.select(models), self._index_B)


class BlockDiagonal:
    """The block diagonal of an operator, of L consecutive blocks.

    All blocks are multiplied in one product, of L times as many columns.
    """

    def __init__(self, operator: BatchedOperator, sizes: Sequence[int]) -> None:
        """Take the operator (M, D, D), and the sizes of the blocks, D in sum."""
        self._operator, self._sizes = operator, list(sizes)
        self.shape, self.dtype = operator.shape, operator.dtype
        self.device = operator.device

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with vectors (M, D) or columns (M, D, S)."""
        if columns.ndim == 2:
            return (self @ columns.unsqueeze(-1)).squeeze(-1)
        owner_D = torch.repeat_interleave(
            torch.arange(len(self._sizes), device=columns.device),
            torch.tensor(self._sizes, device=columns.device),
        )
        is_own_DL = owner_D[:, None] == torch.arange(
            len(self._sizes), device=columns.device
        )
        apart_MDLS = columns.unsqueeze(2) * is_own_DL[None, :, :, None]
        products = self._operator @ apart_MDLS.flatten(2)
        products_MDLS = products.view(apart_MDLS.shape)
        return (products_MDLS * is_own_DL[None, :, :, None]).sum(2)

    def select(self, models: Tensor) -> BlockDiagonal:
        """Return the operator of some of the models, by their indices (m,)."""
        return BlockDiagonal(self._operator.select(models), self._sizes)


def block_index(sizes: Sequence[int], chosen: Sequence[int]) -> Tensor:
    """Return the positions of some of the consecutive blocks, for `PrincipalBlock`.

    Args:
        sizes: of all blocks.
        chosen: numbers of the blocks wanted.

    Returns:
        Positions, int64, in the order of `chosen`.
    """
    pieces = torch.split(torch.arange(sum(sizes)), list(sizes))
    return torch.cat([pieces[number] for number in chosen])


class Preconditioned:
    """The operator P^-1/2 A P^-1/2 for diagonal P.

    It is similar to P^-1 A, so that a rule with steps -lr P^-1 g is stable on a
    quadratic while lr times its largest eigenvalue stays below 2.
    """

    def __init__(self, operator: BatchedOperator, preconditioner_MD: Tensor) -> None:
        """Take A and the diagonal of P.

        Args:
            operator: A, (M, D, D).
            preconditioner_MD: the diagonal of P, positive.

        Raises:
            InputError: an entry is not positive, or not finite.
        """
        if not (preconditioner_MD > 0).all() or preconditioner_MD.isinf().any():
            raise InputError(
                "preconditioner: expected finite numbers above 0, got "
                f"{float(preconditioner_MD.min())} to "
                f"{float(preconditioner_MD.max())}. Add the rule's eps, and take a "
                "state after the first step."
            )
        self._operator = operator
        self._roots_MD = preconditioner_MD.double().rsqrt()
        self.shape = operator.shape
        self.dtype, self.device = operator.dtype, operator.device

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with vectors (M, D) or columns (M, D, S)."""
        roots = self._roots_MD.to(columns)
        if columns.ndim == 3:
            roots = roots.unsqueeze(-1)
        return roots * (self._operator @ (roots * columns))

    def select(self, models: Tensor) -> Preconditioned:
        """Return the operator of some of the models, by their indices (m,)."""
        subset = Preconditioned.__new__(Preconditioned)
        subset._operator = self._operator.select(models)
        subset._roots_MD = self._roots_MD[models]
        subset.shape = (len(models), *self.shape[1:])
        subset.dtype, subset.device = self.dtype, self.device
        return subset

    def lifted(self, vectors: Tensor) -> Tensor:
        """Return P^-1/2 times vectors: eigenvectors here as directions of weights.

        Args:
            vectors: shape (M, D) or (M, D, S).
        """
        roots = self._roots_MD.to(vectors)
        return (roots.unsqueeze(-1) if vectors.ndim == 3 else roots) * vectors


class Copies:
    """One operator as that of M models; equal columns are multiplied once.

    A model alone is computed with a copy of itself, whose products need not be made.
    """

    def __init__(self, operator: BatchedOperator, models: int) -> None:
        """Take the operator of one model, (1, D, D), and M."""
        self._operator = operator
        self.shape = (models, *operator.shape[1:])
        self.dtype, self.device = operator.dtype, operator.device

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with vectors (M, D) or columns (M, D, S)."""
        products = torch.empty_like(columns)
        first = columns[:1]
        if all(torch.equal(first[0], other) for other in columns[1:]):
            products.copy_((self._operator @ first).expand(columns.shape))
            return products
        for number in range(len(columns)):
            one_model = slice(number, number + 1)
            products[one_model] = self._operator @ columns[one_model]
        return products

    @property
    def single(self) -> Affine | None:
        """The map, if it is that of one model."""
        return getattr(self._operator, "single", None) if self.shape[0] == 1 else None

    def select(self, models: Tensor) -> Copies:
        """Return the operator of some of the models, by their indices (m,)."""
        return Copies(self._operator, len(models))


@dataclass(frozen=True)
class LowRank:
    """P = U diag(values) U^T + shift I for each of M models.

    Attributes:
        vectors: U, orthonormal columns, (M, D, k).
        values: not below zero, (M, k).
        shift: above zero, (M,).
    """

    vectors: Tensor
    values: Tensor
    shift: Tensor

    def logdet(self) -> Tensor:
        """Return log det P, (M,)."""
        rest = self.vectors.shape[1] - self.vectors.shape[2]
        leading_M = (self.values + self.shift[:, None]).log().sum(1)
        return leading_M + rest * self.shift.log()

    def inverse_root(self, columns_MDS: Tensor) -> Tensor:
        """Return P^-1/2 times columns, (M, D, S)."""
        outside_M1 = self.shift.rsqrt()[:, None]
        within_Mk = (self.values + self.shift[:, None]).rsqrt() - outside_M1
        along_MkS = self.vectors.mT @ columns_MDS
        leading_MDS = self.vectors @ (within_Mk.unsqueeze(2) * along_MkS)
        return leading_MDS + outside_M1.unsqueeze(2) * columns_MDS

    def share(self, columns_MDS: Tensor) -> Tensor:
        """Return |U^T z|^2 of each column z, (M, S)."""
        return (self.vectors.mT @ columns_MDS).square().sum(1)

    def select(self, models: Tensor) -> Self:
        """Return that of some of the models, by their indices (m,)."""
        return type(self)(self.vectors[models], self.values[models], self.shift[models])


class Preconditioner(Protocol):
    """A positive definite P of M models, of which roots are at hand."""

    def logdet(self) -> Tensor:
        """Return log det P, (M,)."""

    def inverse_root(self, columns_MDS: Tensor) -> Tensor:
        """Return P^-1/2 times columns, (M, D, S)."""

    def select(self, models: Tensor) -> Self:
        """Return that of some of the models, by their indices (m,)."""


class Whitened:
    """P^-1/2 A P^-1/2 as a batched operator; its products cost one with A each."""

    def __init__(self, operator: BatchedOperator, by: Preconditioner) -> None:
        """Take A and P of the same models."""
        self._operator, self._by = operator, by
        self.shape, self.device = operator.shape, operator.device
        self.dtype = torch.float64

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with vectors (M, D) or columns (M, D, S)."""
        if columns.ndim == 2:
            return (self @ columns.unsqueeze(2)).squeeze(2)
        inner = self._by.inverse_root(columns).to(self._operator.dtype)
        return self._by.inverse_root((self._operator @ inner).double())

    def select(self, models: Tensor) -> Whitened:
        """Return the operator of some of the models, by their indices (m,)."""
        return Whitened(self._operator.select(models), self._by.select(models))


def whitened_moments(matrix_DD: Tensor, by: LowRank) -> tuple[float, float]:
    """Return tr B / D and |B|^2 / D of B = P^-1/2 A P^-1/2 from the entries of A.

    Args:
        matrix_DD: A.
        by: P, of one model.
    """
    half_1DD = by.inverse_root(matrix_DD.double().unsqueeze(0))
    whole_DD = by.inverse_root(half_1DD.mT)[0]
    size = len(matrix_DD)
    first = float(whole_DD.diagonal().sum()) / size
    return first, float(whole_DD.square().sum()) / size
