"""Approximate eigenpairs: in what order they are wanted, and when they are found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from curvflow.tasks.numerics.operators.base import BatchedOperator, product

# Largest magnitude, largest algebraic, smallest algebraic.
Which = Literal["LM", "LA", "SA"]


@dataclass(frozen=True)
class Ritz:
    """Approximate eigenpairs of M operators, the most wanted first.

    Attributes:
        values: signed eigenvalues, (M, K).
        vectors: unit eigenvectors as columns, (M, D, K).
        residuals: ||Au - theta u||, (M, K); some eigenvalue lies within it.
        converged: whether the residual is within the tolerance, (M, K).
        iterations: products with a block, (M,).
        num_matvecs: products with a vector, (M,).
    """

    values: Tensor
    vectors: Tensor
    residuals: Tensor
    converged: Tensor
    iterations: Tensor
    num_matvecs: Tensor

    @classmethod
    def empty(cls, models: int, size: int, k: int, like: Tensor) -> Ritz:
        """Return pairs to be filled in.

        Args:
            models: M.
            size: D.
            k: pairs of each.
            like: a tensor of the precision and the device of values and vectors.
        """
        count = torch.zeros(models, dtype=torch.int64, device=like.device)
        return cls(
            like.new_empty(models, k),
            like.new_empty(models, k, size).mT,  # each vector lies whole in memory
            like.new_empty(models, k, dtype=torch.float64),
            torch.zeros(models, k, dtype=torch.bool, device=like.device),
            count,
            count.clone(),
        )

    def write(
        self,
        active: Tensor,
        *,
        values: Tensor,
        vectors: Tensor,
        residuals: Tensor,
        within: Tensor,
        iteration: int,
    ) -> None:
        """Fill in the pairs of some models after a product with a block.

        Args:
            active: numbers of the models among all.
            values: Ritz values of their blocks, (M, B).
            vectors: columns that begin with the Ritz vectors, (M, D, Q).
            residuals: of the Ritz vectors, (M, B).
            within: which are within the tolerance, (M, B).
            iteration: products with a block so far.
        """
        k = self.values.shape[1]
        self.values[active] = values[:, :k]
        self.vectors[active] = vectors[..., :k]
        self.residuals[active] = residuals[:, :k]
        self.converged[active] = within[:, :k]
        self.iterations[active] = iteration
        self.num_matvecs[active] = iteration * values.shape[1]


def preference(values: Tensor, which: Which) -> Tensor:
    """Return the numbers of values along the last dimension, the most wanted first.

    Args:
        values: eigenvalues.
        which: by magnitude, or from the upper or the lower end.
    """
    key = values.abs() if which == "LM" else values
    return key.argsort(dim=-1, descending=which != "SA", stable=True)


def within_tolerance(
    values: Tensor, residuals: Tensor, largest_M: Tensor, *, tol: float, zero: float
) -> Tensor:
    """Return which eigenpairs count as found.

    Args:
        values: eigenvalues, (M, K).
        residuals: of the pairs, (M, K).
        largest_M: the largest magnitude seen.
        tol: residual allowed, relative to the eigenvalue.
        zero: what, relative to the largest, rounding does not distinguish from zero.
    """
    magnitudes = values.double().abs()
    floor = zero * largest_M.double().unsqueeze(1)
    is_zero = (magnitudes <= floor) & (residuals <= floor)
    return (residuals <= tol * magnitudes) | is_zero


def behind_copies(
    values_MK: Tensor, residuals_MK: Tensor, copies_M: Tensor, *, zero: float
) -> Tensor:
    """Return which eigenpairs may be less wanted than copies not found, (M, K).

    An eigenvalue found once is taken for simple, one found as often as it can be, and
    twice or more, for one with further copies.

    Args:
        values_MK: eigenvalues, the most wanted first.
        residuals_MK: of the pairs; values no further apart than theirs may be equal.
        copies_M: how often a repeated eigenvalue can be found.
        zero: what, relative to the largest, rounding does not distinguish from zero.
    """
    floor_M11 = zero * values_MK.double().nan_to_num().abs().amax(1)[:, None, None]
    apart_MKK = (values_MK.unsqueeze(2) - values_MK.unsqueeze(1)).abs()
    may_MKK = residuals_MK.unsqueeze(2) + residuals_MK.unsqueeze(1)
    near_MKK = apart_MKK <= may_MKK + floor_M11
    is_full_MK = near_MKK.sum(2) >= copies_M.clamp(min=2).unsqueeze(1)
    return (is_full_MK.unsqueeze(2) & ~near_MKK).triu(1).any(1)


def zero_level(size: int, dtype: torch.dtype) -> float:
    """Return the rounding of a product, relative to the largest eigenvalue.

    Args:
        size: D; the rounding of a sum over D terms grows as its root.
        dtype: of the products.
    """
    root: float = size**0.5
    return 10 * root * float(torch.finfo(dtype).eps)


def at_least_two(chosen: Tensor) -> Tensor:
    """Pair a model left alone with a copy of itself: see decision 0003."""
    return chosen.repeat(2) if len(chosen) == 1 else chosen


def all_pairs(
    operator: BatchedOperator,
    *,
    k: int,
    which: Which,
    tol: float,
    columns: int | None = None,
) -> Ritz:
    """Find eigenpairs from the whole matrix, where it is no larger than a basis.

    Args:
        operator: symmetric maps A of M models.
        k: eigenpairs wanted.
        which: which of them.
        tol: residual allowed, relative to the eigenvalue.
        columns: vectors multiplied at once; None for all.

    Returns:
        The pairs, at D products with a vector.
    """
    models, size, _ = operator.shape
    unit = torch.eye(size, dtype=torch.float64, device=operator.device)
    parts = torch.split(unit.expand(models, -1, -1), columns or size, dim=2)
    A_MDD = torch.cat([product(operator, part) for part in parts], dim=2)
    values, vectors = torch.linalg.eigh((A_MDD + A_MDD.mT) / 2)
    chosen = preference(values, which)[:, :k]
    U_MDK = vectors.gather(2, chosen.unsqueeze(1).expand(-1, size, -1))
    theta_MK = values.gather(1, chosen)
    residuals: Tensor = (A_MDD @ U_MDK - U_MDK * theta_MK.unsqueeze(1)).norm(dim=1)
    count = torch.full((models,), 1, dtype=torch.int64, device=values.device)
    converged = within_tolerance(
        theta_MK,
        residuals,
        values.abs().amax(1),
        tol=tol,
        zero=zero_level(size, operator.dtype),
    )
    return Ritz(theta_MK, U_MDK, residuals, converged, count, count * size)
