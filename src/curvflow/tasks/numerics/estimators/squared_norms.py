"""Squared Frobenius norms by random vectors, for all data or for batches of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.derivatives.variances import curvature_variances
from curvflow.tasks.numerics.estimators.forms import Error, shrunk
from curvflow.tasks.numerics.estimators.sketched_traces import (
    PlainVectors,
    TraceDraws,
    trace_estimates,
    until_reached,
)
from curvflow.tasks.numerics.operators.base import (
    AnyOperator,
    BatchedOperator,
    as_batched,
    as_sample_mean,
)


class _Images(PlainVectors):
    """||Az||^2 of each vector, a form in A^2, whose square pairs of images estimate.

    The mean of (Az.Aw)^2 over pairs of vectors is ||A^2||_F^2, half of the variance of
    ||Az||^2 for Gaussian vectors, and at least half of it for signs.
    """

    def __init__(
        self, operator: BatchedOperator, seeds: Sequence[int], **given: Any
    ) -> None:
        super().__init__(operator, seeds, **given)
        self._squares_M = torch.zeros(len(seeds), dtype=torch.float64)
        self._pairs = 0

    def terms(self, z_MDS: Tensor, images_MDS: Tensor) -> Tensor:
        inner_MSS = (images_MDS.mT @ images_MDS).cpu()
        alone_MS = inner_MSS.diagonal(dim1=1, dim2=2)
        squares_M = inner_MSS.square().sum((1, 2)) - alone_MS.square().sum(1)
        self._squares_M = self._squares_M + squares_M
        self._pairs += alone_MS.shape[1] * (alone_MS.shape[1] - 1)
        return images_MDS.square()

    def select(self, models: Tensor) -> None:
        super().select(models)
        self._squares_M = self._squares_M[models]

    def error(self, draws_MLS: Tensor) -> Error:
        by_draws = super().error(draws_MLS)
        if not self._pairs:
            return by_draws
        half_M, count = self._squares_M / self._pairs, draws_MLS.shape[2]
        freedom_M = torch.full_like(half_M, min(count, self._pairs // 2))
        law = Error((2 * half_M / count).sqrt(), freedom_M)
        return shrunk(by_draws, law, size=self.operator.shape[1])


class _BatchImages:
    """Unbiased draws, each of a new vector and new batches."""

    def __init__(
        self,
        operator: AnyOperator,
        seeds: Sequence[int],
        *,
        batch_size: int,
        num_batches: int,
        distribution: str,
        batches_per_pass: int,
    ) -> None:
        self.operator = as_sample_mean(as_batched(operator))
        self._seeds, self._models = list(seeds), torch.arange(len(seeds))
        self._batch_size = batch_size
        self._num_batches, self._distribution = num_batches, distribution
        self._batches_per_pass = batches_per_pass
        self._draws_M1S = torch.zeros((len(seeds), 1, 0), dtype=torch.float64)

    def grow(self, count: int) -> None:
        """Draw vectors until there are `count` of them."""
        first, size = self._draws_M1S.shape[2], self.operator.shape[1]
        drawn = curvature_variances(
            lambda models_R, rows_RB: self.operator.of_samples(
                self._models[models_R], rows_RB
            ),
            self._seeds,
            size=size,
            num_samples=self.operator.num_samples,
            batch_size=self._batch_size,
            num_batches=self._num_batches,
            first_probe=first,
            num_probes=count - first,
            distribution=self._distribution,
            batches_per_pass=self._batches_per_pass,
        )
        more_M1S = drawn.squared_mean.unsqueeze(1)
        self._draws_M1S = torch.cat([self._draws_M1S, more_M1S], dim=2)

    def estimates(self, rel_sem: float | None) -> list[TraceDraws]:
        """Return the estimate of each model, and whether it is accurate enough."""
        samples = self._draws_M1S.shape[2] * self._batch_size * self._num_batches
        work = math.ceil(samples / self.operator.num_samples)
        return trace_estimates(self._draws_M1S, work, rel_sem)

    def select(self, models: Tensor) -> None:
        """Keep some of the models, by their indices (m,)."""
        self._models, self._draws_M1S = self._models[models], self._draws_M1S[models]
        self._seeds = [self._seeds[model] for model in models.tolist()]


def squared_norms(
    operator: AnyOperator,
    seeds: Sequence[int],
    *,
    num_probes: int,
    distribution: str,
    block: int,
    rel_sem: float | None = None,
    max_probes: int | None = None,
) -> list[TraceDraws]:
    """Estimate ||A||_F^2 = tr A^2 as the mean of ||Az||^2.

    Args:
        operator: symmetric maps of M models, or one, (D, D).
        seeds: seed of each model's vectors.
        num_probes: vectors at the first look.
        distribution: `rademacher` or `gaussian`.
        block: vectors multiplied at once, bounding memory.
        rel_sem: standard error requested, relative to the estimate; looks are taken as
            by `traces`.
        max_probes: most vectors; None for `num_probes`.

    Returns:
        Per model its draws, (1, S), and its work.

    Examples:
        >>> from curvflow.tasks.numerics import Dense, squared_norms
        >>> A = Dense(torch.diag(torch.arange(1.0, 4.0).double()))
        >>> (found,) = squared_norms(
        ...     A, [0], num_probes=4, distribution="rademacher", block=4
        ... )
        >>> found.draws.tolist()  # signs see a diagonal matrix exactly
        [[14.0, 14.0, 14.0, 14.0]]
    """
    batched = as_batched(operator)
    sizes = [batched.shape[1]]
    probed = _Images(
        batched, seeds, sizes=sizes, distribution=distribution, block=block
    )
    return until_reached(probed, num_probes, rel_sem, max_probes)


def batch_squared_norms(
    operator: AnyOperator,
    seeds: Sequence[int],
    *,
    batch_size: int,
    num_batches: int,
    num_probes: int,
    distribution: str,
    batches_per_pass: int = 64,
    rel_sem: float | None = None,
    max_probes: int | None = None,
) -> list[TraceDraws]:
    """Estimate ||A||_F^2 of means over samples, each vector by new batches.

    Args:
        operator: means over samples, of M models, or of one.
        seeds: seed of each model's vectors and batches.
        batch_size: samples per batch, B.
        num_batches: disjoint batches of each vector, K; fewer, and smaller ones, where
            there are fewer than B K samples.
        num_probes: vectors at the first look.
        distribution: `rademacher` or `gaussian`.
        batches_per_pass: multiplied at once, each with a copy of the weights.
        rel_sem: as for `squared_norms`.
        max_probes: as for `squared_norms`.

    Returns:
        Per model its draws, (1, S), and its work.

    Raises:
        InputError: the operator is no mean over samples, there is one sample alone, or
            a product is not finite.

    Examples:
        >>> from curvflow.tasks.numerics import batch_squared_norms, hessian
        >>> net = torch.nn.Linear(1, 1, bias=False).double()
        >>> x = torch.arange(1.0, 9.0).double().unsqueeze(1)
        >>> (found,) = batch_squared_norms(
        ...     hessian(net, "sse", (x, x)),
        ...     [0],
        ...     batch_size=4,
        ...     num_batches=2,
        ...     num_probes=4,
        ...     distribution="rademacher",
        ... )
        >>> round(found.draws.mean().item(), 6)  # of 2 x^2, its mean: 51
        2601.0
    """
    count = as_sample_mean(as_batched(operator)).num_samples
    if count < 2:
        raise InputError(
            f"data: expected two samples or more for probes_per batch, got {count}. "
            "Take probes_per data."
        )
    batch_size = min(batch_size, count // 2)
    probed = _BatchImages(
        operator,
        seeds,
        batch_size=batch_size,
        num_batches=min(num_batches, count // batch_size),
        distribution=distribution,
        batches_per_pass=batches_per_pass,
    )
    return until_reached(probed, num_probes, rel_sem, max_probes)
