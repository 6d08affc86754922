"""Descent directions of damped curvature, each solved to a stated residual.

Letters, besides M models and D parameters: T dampings, L layers, S columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.tasks.numerics.krylov.lanczos import LanczosRuns, RitzData
from curvflow.tasks.numerics.krylov.linear_solvers import (
    Solution,
    conjugate_gradients,
    minres,
)
from curvflow.tasks.numerics.operators.base import BatchedOperator

# Steps of Lanczos before directions are first compared with those of twice as many.
FIRST_STEPS = 8


@dataclass(frozen=True)
class Directions:
    """Solutions of damped systems, one for each damping.

    Attributes:
        vectors: (M, D, T), float64.
        residuals: relative to the gradient; of `absolute`, the relative change when the
            steps were doubled last; of `blocks`, that of the worst layer; (M, T).
        converged: whether it is within the tolerance, (M, T).
        num_matvecs: products with a vector that were needed, (M,).
    """

    vectors: Tensor
    residuals: Tensor
    converged: Tensor
    num_matvecs: Tensor


class Damped:
    """An operator with a multiple of the identity for each column, on some parameters.

    Attributes:
        shape: models, rows and columns.
        dtype: of vectors and products.
        device: of vectors and products.
    """

    def __init__(
        self, operator: BatchedOperator, damping_S: Tensor, mask_DS: Tensor | None
    ) -> None:
        """Take the operator, and of each column the damping and its parameters."""
        self.operator, self.damping_S, self.mask_DS = operator, damping_S, mask_DS
        self.shape = operator.shape
        self.dtype, self.device = operator.dtype, operator.device

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with columns (M, D, S), each with its own damping."""
        if self.mask_DS is None:
            return self.operator @ columns + self.damping_S * columns
        kept = columns * self.mask_DS
        return (self.operator @ kept) * self.mask_DS + self.damping_S * kept

    def select(self, models: Tensor) -> Damped:
        """Return the operator of some of the models, by their indices (m,)."""
        return Damped(self.operator.select(models), self.damping_S, self.mask_DS)


def gauss_newton(
    operator: BatchedOperator,
    gradient_MD: Tensor,
    damping_T: Tensor,
    *,
    tol: float,
    max_iterations: int,
) -> Directions:
    """Solve (A + damping) x = -g for positive semidefinite A by conjugate gradients.

    Without damping, and where A is singular, it is the shortest solution, if there is
    one.

    Args:
        operator: A.
        gradient_MD: g.
        damping_T: added to the diagonal, not negative.
        tol: residual allowed, relative to ||g||.
        max_iterations: products with the block at most.

    Returns:
        The directions.
    """
    damped, right_MDT = _whole(operator, gradient_MD, damping_T)
    return _as_they_are(
        conjugate_gradients(damped, right_MDT, tol=tol, max_iterations=max_iterations)
    )


def newton(
    operator: BatchedOperator,
    gradient_MD: Tensor,
    damping_T: Tensor,
    *,
    tol: float,
    max_iterations: int,
) -> Directions:
    """Solve (A + damping) x = -g for symmetric A of any signs by minimal residuals.

    Args:
        operator: as for `gauss_newton`, of any signs.
        gradient_MD: as there.
        damping_T: as there.
        tol: as there.
        max_iterations: as there.

    Returns:
        The directions, which may go uphill.
    """
    damped, right_MDT = _whole(operator, gradient_MD, damping_T)
    return _as_they_are(
        minres(damped, right_MDT, tol=tol, max_iterations=max_iterations)
    )


def blocks(
    operator: BatchedOperator,
    gradient_MD: Tensor,
    damping_T: Tensor,
    *,
    layers: Sequence[Tensor],
    tol: float,
    max_iterations: int,
) -> Directions:
    """Solve (A + damping) x = -g with nothing of A outside the blocks of layers.

    Each block is a separate system, by conjugate gradients, all at once.

    Args:
        operator: as for `gauss_newton`.
        gradient_MD: as there.
        damping_T: as there.
        layers: places of the parameters of each layer.
        tol: residual allowed, relative to the layer's part of g.
        max_iterations: products with all blocks at most.

    Returns:
        The directions.
    """
    count, size = len(layers), gradient_MD.shape[1]
    mask_DL = gradient_MD.new_zeros(size, count)
    for number, places in enumerate(layers):
        mask_DL[places, number] = 1.0
    mask_DS = mask_DL.repeat_interleave(len(damping_T), dim=1)
    damping_S = damping_T.repeat(count)
    damped = Damped(operator, damping_S.to(operator.dtype), mask_DS.to(operator.dtype))
    solution = conjugate_gradients(
        damped,
        -gradient_MD.unsqueeze(2) * mask_DS,
        tol=tol,
        max_iterations=max_iterations,
    )
    by_layer = (count, len(damping_T))
    return Directions(
        torch.unflatten(solution.x, 2, by_layer).sum(2),
        torch.unflatten(solution.residuals, 1, by_layer).amax(1),
        torch.unflatten(solution.converged, 1, by_layer).all(1),
        _products(solution),
    )


def absolute(
    operator: BatchedOperator,
    gradient_MD: Tensor,
    damping_T: Tensor,
    *,
    shift: float = 0.0,
    tol: float,
    max_iterations: int,
) -> Directions:
    """Return -(|A + shift| + damping)^-1 g, by Lanczos from the gradient itself.

    |A| has the magnitudes of the eigenvalues of A. Steps are doubled until no direction
    changes by more than the tolerance, or the Krylov space holds all of g, where the
    direction is exact.

    Args:
        operator: symmetric A of any signs.
        gradient_MD: g.
        damping_T: as for `gauss_newton`.
        shift: added to A within the magnitude.
        tol: relative change allowed.
        max_iterations: steps at most.

    Returns:
        The directions.
    """
    limit = min(max_iterations, gradient_MD.shape[1])
    is_zero_M1 = (gradient_MD == 0).all(1, keepdim=True)
    safe_MD = torch.where(is_zero_M1, 1.0, gradient_MD)  # Lanczos takes no zero
    runs = LanczosRuns(operator, safe_MD.unsqueeze(2).to(operator.dtype))
    x_MDT = torch.zeros_like(gradient_MD).unsqueeze(2).repeat(1, 1, len(damping_T))
    change_MT = torch.full_like(x_MDT[:, 0], torch.inf)
    made_M = torch.zeros(len(x_MDT), dtype=torch.int64)
    going_M = ~is_zero_M1.squeeze(1)
    change_MT[~going_M] = 0.0
    steps = min(FIRST_STEPS, limit)
    while going_M.any():
        ritz = runs.extended(steps, vectors=True)
        next_MDT = _by_ritz_pairs(ritz, gradient_MD, damping_T, shift)
        lengths_MT = next_MDT.norm(dim=1)
        next_MT = (next_MDT - x_MDT).norm(dim=1) / lengths_MT
        is_exact_M = ritz.steps[:, 0] < steps
        is_exact_M = (is_exact_M | (ritz.steps[:, 0] == ritz.size)).to(going_M.device)
        next_MT = torch.where(is_exact_M.unsqueeze(1), 0 * lengths_MT, next_MT)
        x_MDT = torch.where(going_M[:, None, None], next_MDT, x_MDT)
        change_MT = torch.where(going_M.unsqueeze(1), next_MT, change_MT)
        made_M = torch.where(going_M.cpu(), ritz.steps[:, 0], made_M)
        going_M = going_M & ~(change_MT <= tol).all(1) & ~is_exact_M
        if steps == limit:
            break
        steps = min(2 * steps, limit)
    return Directions(x_MDT, change_MT, change_MT <= tol, made_M)


def _by_ritz_pairs(
    ritz: RitzData, gradient_MD: Tensor, damping_T: Tensor, shift: float
) -> Tensor:
    assert ritz.vectors is not None
    vectors_MDK = ritz.vectors[:, 0].to(gradient_MD)
    values_MK1 = ritz.values[:, 0].to(gradient_MD).unsqueeze(2)
    along_MK1 = vectors_MDK.mT @ gradient_MD.unsqueeze(2)
    scaled_MKT = along_MK1 / ((values_MK1 + shift).abs() + damping_T)
    scaled_MKT = torch.where(values_MK1.isnan(), 0.0, scaled_MKT)
    return -vectors_MDK @ scaled_MKT


def _whole(
    operator: BatchedOperator, gradient_MD: Tensor, damping_T: Tensor
) -> tuple[Damped, Tensor]:
    right_MDT = -gradient_MD.unsqueeze(2).repeat(1, 1, len(damping_T))
    return Damped(operator, damping_T.to(operator.dtype), None), right_MDT


def _as_they_are(solution: Solution) -> Directions:
    return Directions(
        solution.x, solution.residuals, solution.converged, _products(solution)
    )


def _products(solution: Solution) -> Tensor:
    """Return products of the columns that had not stopped, and those that measured.

    They were one a column, and another where it had not converged.
    """
    missed = (~solution.converged).sum(1)
    return (solution.iterations.sum(1) + solution.x.shape[2] + missed).cpu()
