"""Curvature that steps meet in a constant metric, measured for the calibration.

In coordinates S^-1 w the energy of a quadratic has the curvature S (nbeta H + gamma) S.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.numerics.krylov.quadrature import extremes
from curvflow.tasks.numerics.operators.algebra import BatchedSum
from curvflow.tasks.numerics.operators.base import BatchedOperator
from curvflow.tasks.numerics.sampling.chain_targets import ChainTargets
from curvflow.tasks.numerics.sampling.measured_curvature import (
    DENSE,
    RUNS,
    MeasuredCurvature,
    Scales,
    reached,
    scales,
    spectrum_of,
)
from curvflow.tasks.numerics.sampling.whitening import (
    ROUNDING,
    BlockWhitening,
    Eigenvectors,
    Whitening,
)

AnyWhitening = Whitening | BlockWhitening


class Mapped:
    """The operators S A S of M targets."""

    def __init__(self, operator: BatchedOperator, whitening: AnyWhitening) -> None:
        """Take A and the map S, one group for each target."""
        self._operator, self._whitening = operator, whitening
        self.shape, self.dtype = operator.shape, operator.dtype
        self.device = operator.device

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with vectors (M, D) or columns (M, D, S)."""
        if columns.ndim == 2:
            return (self @ columns[..., None])[..., 0]
        return self.map(self._operator @ self.map(columns))

    def map(self, columns_MDS: Tensor) -> Tensor:
        """Return S times columns, (M, D, S)."""
        models, size, _ = columns_MDS.shape
        mapped_CD = self._whitening(columns_MDS.mT.reshape(-1, size))
        return mapped_CD.view(models, -1, size).mT

    def select(self, models: Tensor) -> Self:
        """Return the operator of some of the targets, by their numbers (m,)."""
        return type(self)(self._operator.select(models), self._whitening.select(models))


@dataclass(frozen=True)
class MetricCurvature:
    """Curvature of the energy in the coordinates of maps S of M targets.

    Attributes:
        whitening: S, of all parameters.
        localization: gamma, of the energy and of S, (M,).
        ritz: of S (nbeta H + gamma) S on the parameters that move.
        parts: what of each Ritz value the loss has, (M, S, K): of eigenvectors, and 1,
            an upper bound, where these are not known.
        at_reach: mean curvature at the reach of the posterior, (M,).
    """

    whitening: AnyWhitening
    localization: Tensor
    ritz: RitzData
    parts: Tensor
    at_reach: Tensor

    @property
    def scales(self) -> Scales:
        """Those by which steps in the metric are set, at nbeta 1 and gamma 0."""
        return scales(self.ritz, self.at_reach)

    @property
    def condition(self) -> Tensor:
        """Largest curvature over the smallest, (M,)."""
        low_M, high_M = extremes(self.ritz)
        return ratio(torch.maximum(high_M, self.at_reach), low_M)

    def work(self, number: int) -> float:
        """Return the gradients over all data that measuring one target took."""
        return 2 * int(self.ritz.steps[number].sum()) + 10 * RUNS / 3


def ratio(largest_M: Tensor, smallest_M: Tensor) -> Tensor:
    """Return a condition number, (M,), at most that which rounding resolves."""
    return largest_M / torch.maximum(smallest_M, ROUNDING * largest_M)


def condition_of(measured: MeasuredCurvature, localization_M: Tensor) -> Tensor:
    """Return the condition number of the energy without a metric, (M,)."""
    low_M, _ = extremes(measured.ritz)
    largest_M = measured.nbeta * measured.scales.largest + localization_M
    return ratio(largest_M, measured.nbeta * low_M + localization_M)


def by_factors(
    targets: ChainTargets, nbeta_M: Tensor, localization_M: Tensor
) -> MetricCurvature:
    """Measure the curvature in the metric of the factors of targets.

    Args:
        targets: the weights, losses and factors.
        nbeta_M: inverse temperatures.
        localization_M: gamma.

    Returns:
        The curvature, and the maps by which it is measured.
    """
    assert targets.factors is not None
    inside, whole = (
        BlockWhitening.of(
            targets.factors, nbeta_M, localization_M, free=free, dtype=dtype
        )
        for free, dtype in (
            (None, torch.float64),
            (targets.free, targets.weights.dtype),
        )
    )
    return _measured(targets, nbeta_M, localization_M, inside, whole)


def by_eigenvectors(
    targets: ChainTargets, measured: MeasuredCurvature, localization_M: Tensor
) -> tuple[Tensor, Tensor]:
    """Measure the condition number by known eigenvectors of the Hessian.

    Args:
        targets: the weights and losses.
        measured: with vectors.
        localization_M: gamma.

    Returns:
        The numbers of each target, 1 where all eigenvectors are known, and the work in
        gradients over all data, both (M,).
    """
    vectors = measured.ritz.vectors
    assert vectors is not None
    if measured.ritz.size <= DENSE:
        return torch.ones_like(localization_M), torch.zeros_like(localization_M)
    numbers = range(len(localization_M))
    curvatures = [measured.eigenvectors(number).curvatures for number in numbers]
    groups = [
        (
            # Of a Hessian of zero all directions are scaled alike.
            Eigenvectors(vectors[n, 0], curvatures[n].expand(vectors.shape[3] + 1))
            if measured.scales.is_flat[n]
            else Eigenvectors(vectors[n, 0], curvatures[n]),
            float(measured.nbeta[n]),
            float(localization_M[n]),
        )
        for n in numbers
    ]
    inside, whole = (
        Whitening.of(groups, free, like)
        for free, like in ((None, vectors.double()), (targets.free, targets.weights))
    )
    curvature = _measured(targets, measured.nbeta, localization_M, inside, whole)
    return curvature.condition, torch.tensor([curvature.work(n) for n in numbers])


def _measured(
    targets: ChainTargets,
    nbeta_M: Tensor,
    localization_M: Tensor,
    inside: AnyWhitening,
    whole: AnyWhitening,
) -> MetricCurvature:
    """Measure in the coordinates of maps, of the free and of all parameters."""
    hessian = targets.operator(RUNS)
    energy = BatchedSum([(nbeta_M, hessian)], localization_M)
    operator = Mapped(energy, inside)
    ritz = spectrum_of(operator, targets.seeds, vectors=False)
    # In coordinates a distance r has the energy c r^2 / 2 without nbeta.
    at_reach_M = nbeta_M * reached(targets, nbeta_M, whole)
    parts = _parts(operator, ritz, localization_M)
    return MetricCurvature(whole, localization_M, ritz, parts, at_reach_M)


def _parts(operator: Mapped, ritz: RitzData, localization_M: Tensor) -> Tensor:
    """Return the part of each eigenvalue that is the loss's, (M, S, K)."""
    if ritz.vectors is None:
        return torch.ones_like(ritz.values)
    held_MK = operator.map(ritz.vectors[:, 0]).square().sum(1).cpu()
    held_MK *= localization_M[:, None] / ritz.values[:, 0]
    return (1 - held_MK).clamp(0, 1)[:, None]
