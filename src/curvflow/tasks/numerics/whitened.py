"""Operators made nearly the identity by what is known of their leading part."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.tasks.numerics.operators import BatchedOperator


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

    def select(self, models: Tensor) -> LowRank:
        """Return that of some of the models, by their indices (m,)."""
        return LowRank(self.vectors[models], self.values[models], self.shift[models])


class Whitened:
    """P^-1/2 A P^-1/2 as a batched operator; its products cost one with A each."""

    def __init__(self, operator: BatchedOperator, by: LowRank) -> None:
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
