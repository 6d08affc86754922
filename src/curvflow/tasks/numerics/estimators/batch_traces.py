"""Traces of means over samples, by separate random vectors for each batch.

A mean over N samples is a mean over batches, and so is its trace: each batch may have
vectors of its own. One product per sample then draws as many vectors as there are
batches. With S_B^2 the variance between the K batches and s^2 that of one vector of a
batch, m of the batches, q vectors each, give a mean of the variance

    (1/m - 1/K) S_B^2 + s^2 / (q m),

whose first part ends when all data were seen. Further letters: L blocks of the
dimension D, U batches of a pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import torch
from torch import Tensor

from curvflow.tasks.numerics.estimators.sketched_traces import until_reached
from curvflow.tasks.numerics.estimators.traces import random_vectors
from curvflow.tasks.numerics.operators.base import (
    AnyOperator,
    SampleMean,
    as_batched,
    as_sample_mean,
    measured_product,
)
from curvflow.tasks.numerics.streams import shuffled

# Vectors of a batch: what they differ by tells their part of the error.
PAIR = 2


@dataclass(frozen=True)
class BatchTrace:
    """Estimate of one operator's trace by blocks, float64 on the CPU.

    Attributes:
        draws: of each batch by the mean over its vectors, (L, S); their mean is the
            trace of each block.
        layer_sem: standard error of that mean, (L,).
        layer_vectors: the part of it that the random vectors have, (L,).
        sem: standard error of the whole trace, the sum over blocks, ().
        sem_vectors: the part of it that the random vectors have, ().
        sem_batches: the part of batches that were not seen, (); 0 after a whole pass.
        num_batches: batches multiplied, each with two vectors.
        num_matvecs: products over all data that were as much work, rounded up.
        reached: whether the relative standard error requested was reached; True if
            none was.
    """

    draws: Tensor
    layer_sem: Tensor
    layer_vectors: Tensor
    sem: Tensor
    sem_vectors: Tensor
    sem_batches: Tensor
    num_batches: int
    num_matvecs: int
    reached: bool

    @property
    def num_vectors(self) -> int:
        """Vectors that see two dimensions apart as often as the pairs of batches do.

        Signs of two dimensions are alike, or opposite, in both of a pair in half of the
        cases: in all of B pairs as often as in B + 1 vectors.
        """
        return self.num_batches + 1

    @property
    def freedom(self) -> Tensor:
        """Degrees of freedom of the error, ()."""
        return torch.tensor(self.draws.shape[1] - 1.0, dtype=torch.float64)


class Pairs(NamedTuple):
    """Moments of the two draws of each of some batches, for any leading dimensions A.

    Attributes:
        seen: batches.
        within: mean over these of the variance of the mean over the two, (A).
        spread: variance between these means, (A); 0 of one batch.
    """

    seen: int
    within: Tensor
    spread: Tensor


class Pass:
    """One reading of the data by batches in random order, as far as it has come."""

    def __init__(
        self, number: int, seeds: Sequence[int], *, num_samples: int, batch_size: int
    ) -> None:
        self.batch_size = min(batch_size, num_samples)
        self.num_equal, rest = divmod(num_samples, self.batch_size)
        whole = num_samples - rest
        # What is over is a batch too, the first one.
        self.num_units = self.num_equal + (rest > 0)
        self.share, self.rest = whole / num_samples, rest
        rows_MN = shuffled(seeds, number, num_samples)
        self._rows_MKB = rows_MN[:, :whole].view(-1, self.num_equal, self.batch_size)
        self._rest_MR = rows_MN[:, whole:]
        self.first = number * self.num_units
        self.units: list[Tensor] = []  # (M, L, k, 2) each

    @property
    def count(self) -> int:
        """Batches multiplied so far."""
        return sum(part.shape[2] for part in self.units)

    @property
    def share_seen(self) -> Fraction:
        """Part of the samples that was multiplied."""
        equal = self.count - (self.rest > 0)
        whole = self.num_equal * self.batch_size + self.rest
        return Fraction(equal * self.batch_size + self.rest, whole)

    def next_rows(self, most: int) -> Tensor:
        """Return the samples of the next batches, (M, k, B)."""
        if self.rest and not self.units:
            return self._rest_MR.unsqueeze(1)
        start = self.count - (self.rest > 0)
        return self._rows_MKB[:, start : start + most]

    def select(self, models: Tensor) -> None:
        """Keep some of the models, by their indices (m,)."""
        self._rows_MKB, self._rest_MR = self._rows_MKB[models], self._rest_MR[models]
        self.units = [part[models] for part in self.units]

    def draws(self) -> tuple[Tensor, Tensor]:
        """Return those of equal batches, (M, L, m, 2), and of a last, smaller one."""
        drawn_MLU2 = torch.cat(self.units, dim=2)
        over = int(self.rest > 0)
        return drawn_MLU2[:, :, over:], drawn_MLU2[:, :, :over]


class Batches:
    """Draws of M models so far, pass by pass; more can be drawn."""

    def __init__(
        self,
        operator: SampleMean,
        seeds: Sequence[int],
        *,
        sizes: Sequence[int],
        batch_size: int,
        distribution: str,
        batches_per_pass: int,
    ) -> None:
        """Begin without a vector.

        Args:
            operator: means over samples, of M models.
            seeds: seed of each model's vectors and batches.
            sizes: sizes of the L consecutive blocks, D in sum.
            batch_size: samples per batch.
            distribution: `rademacher` or `gaussian`.
            batches_per_pass: multiplied at once, each with a copy of the weights.
        """
        self.operator, self.sizes = operator, list(sizes)
        self._seeds, self._models = list(seeds), torch.arange(len(seeds))
        self._batch_size, self.distribution = batch_size, distribution
        self._most = batches_per_pass
        self.passes = [self._pass(0)]

    def _pass(self, number: int) -> Pass:
        return Pass(
            number,
            self._seeds,
            num_samples=self.operator.num_samples,
            batch_size=self._batch_size,
        )

    def grow(self, look: int) -> None:
        """Draw until there are as many vectors as a look wants, passes being whole."""
        per_pass = self.passes[0].num_units
        wanted = max(-(-look // PAIR), PAIR + 1)  # some spread between batches
        if wanted >= per_pass:
            wanted = -(-wanted // per_pass) * per_pass
        while (missing := wanted - sum(drawn.count for drawn in self.passes)) > 0:
            if self.passes[-1].count == per_pass:
                self.passes.append(self._pass(len(self.passes)))
            latest = self.passes[-1]
            latest.units.append(self._next(latest, min(self._most, missing)))

    def _next(self, latest: Pass, most: int) -> Tensor:
        """Multiply the next batches; return z.Az of each block, (M, L, k, 2)."""
        rows_MkB = latest.next_rows(most)
        models, count, _ = rows_MkB.shape
        first = PAIR * (latest.first + latest.count)
        vectors = range(first, first + PAIR * count)
        models_R = self._models.repeat_interleave(count)
        operator = self.operator.of_samples(models_R, rows_MkB.flatten(0, 1))
        z_MDS = random_vectors(
            self._seeds, operator.shape[1], vectors, self.distribution, operator.dtype
        )
        z_MDkP = z_MDS.reshape(models, -1, count, PAIR)
        z_RDP = z_MDkP.movedim(2, 1).flatten(0, 1).to(operator.device)
        images_RDP, _ = measured_product(operator, z_RDP)
        terms_RDP = z_RDP * images_RDP
        self.observe(latest, terms_RDP.view(models, count, -1, PAIR))
        parts = torch.split(terms_RDP, self.sizes, dim=1)
        sums = [part.sum(1, dtype=torch.float64) for part in parts]
        drawn_RLP = torch.stack(sums, dim=1).cpu()
        return drawn_RLP.view(models, count, -1, PAIR).movedim(1, 2)

    def observe(self, latest: Pass, terms_MkDP: Tensor) -> None:
        """Take z_i (Az)_i of further batches; traces need no more than their sums."""

    def traces(self, rel_sem: float | None) -> list[BatchTrace]:
        """Return the trace of each model, and whether it is accurate enough."""
        return _summed_up(self.passes, rel_sem)

    def select(self, models: Tensor) -> None:
        """Keep some of the models, by their indices (m,)."""
        self._models = self._models[models]
        self._seeds = [self._seeds[model] for model in models.tolist()]
        for one_pass in self.passes:
            one_pass.select(models)


class _Traces(Batches):
    """Traces of M models so far."""

    def estimates(self, rel_sem: float | None) -> list[BatchTrace]:
        """Return the estimate of each model, and whether it is accurate enough."""
        return self.traces(rel_sem)


def batch_traces(
    operator: AnyOperator,
    sizes: Sequence[int],
    seeds: Sequence[int],
    *,
    batch_size: int,
    num_probes: int,
    distribution: str,
    batches_per_pass: int = 64,
    rel_sem: float | None = None,
    max_probes: int | None = None,
) -> list[BatchTrace]:
    """Estimate traces by blocks, two random vectors for each batch of the data.

    Batches are drawn without replacement, so that few of them stand for all data, and
    what their choice adds to the error goes to zero as they become all. Looks are
    taken as by `traces`; once all data were seen, at whole passes alone.

    Args:
        operator: means over samples, of M models, or of one.
        sizes: sizes of the L consecutive blocks, D in sum.
        seeds: seed of each model's vectors and batches.
        batch_size: samples per batch, B.
        num_probes: vectors at the first look, two for each batch.
        distribution: `rademacher` or `gaussian`.
        batches_per_pass: multiplied at once, each with a copy of the weights.
        rel_sem: standard error of the whole trace requested, relative to it; None stops
            at the first look.
        max_probes: most vectors; None for `num_probes`. A pass once begun after the
            first is ended.

    Returns:
        Per model its estimate and its work.

    Raises:
        InputError: the operator is no mean over samples, or a product is not finite.

    Examples:
        >>> from curvflow.tasks.numerics import batch_traces, hessian
        >>> net = torch.nn.Linear(1, 1, bias=False).double()
        >>> x = torch.arange(1.0, 9.0).double().unsqueeze(1)
        >>> H = hessian(net, "sse", (x, x))
        >>> (found,) = batch_traces(
        ...     H, [1], [0], batch_size=2, num_probes=8, distribution="rademacher"
        ... )
        >>> round(found.draws.mean().item(), 9), found.sem.item()  # 2 x^2, its mean
        (51.0, 0.0)
    """
    drawn = _Traces(
        as_sample_mean(as_batched(operator)),
        seeds,
        sizes=sizes,
        batch_size=batch_size,
        distribution=distribution,
        batches_per_pass=batches_per_pass,
    )
    return until_reached(drawn, num_probes, rel_sem, max_probes)


def _summed_up(passes: Sequence[Pass], rel_sem: float | None) -> list[BatchTrace]:
    parts, wholes, draws = [], [], []
    for one_pass in passes:
        equal_MLmP, over_MLoP = one_pass.draws()
        parts.append(_errors(one_pass, equal_MLmP, over_MLoP))
        wholes.append(_errors(one_pass, equal_MLmP.sum(1), over_MLoP.sum(1)))
        over_ML1 = over_MLoP.mean(3).sum(2, keepdim=True)
        draws.append(
            one_pass.share * equal_MLmP.mean(3) + (1 - one_pass.share) * over_ML1
        )
    draws_MLS = torch.cat(draws, dim=2)
    vectors_M, batches_M = _over_passes(wholes)
    by_vectors_ML, by_batches_ML = _over_passes(parts)
    layers_ML = by_vectors_ML + by_batches_ML
    sem_M, trace_M = (vectors_M + batches_M).sqrt(), draws_MLS.mean(2).sum(1)
    reached_M = sem_M <= (torch.inf if rel_sem is None else rel_sem) * trace_M.abs()
    num_batches = sum(one_pass.count for one_pass in passes)
    seen = sum(one_pass.share_seen for one_pass in passes)
    return [
        BatchTrace(
            draws_MLS[number],
            layers_ML[number].sqrt(),
            by_vectors_ML[number].sqrt(),
            sem_M[number],
            vectors_M[number].sqrt(),
            batches_M[number].sqrt(),
            num_batches,
            math.ceil(PAIR * seen),
            rel_sem is None or bool(reached_M[number]),
        )
        for number in range(len(draws_MLS))
    ]


def _over_passes(variances: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, ...]:
    """Return the variances of the mean over passes, by vectors and by batches."""
    return tuple(
        torch.stack(of_passes).sum(0) / len(variances) ** 2
        for of_passes in zip(*variances, strict=True)
    )


def _errors(
    one_pass: Pass, equal_AmP: Tensor, over_AoP: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the variances of a pass's mean, by vectors and by batches not seen, (A).

    Args:
        one_pass: whose batches were drawn.
        equal_AmP: draws of m equal batches, two each, for any leading dimensions A.
        over_AoP: draws of the batch that is over, if there is one.
    """
    within_A, means_Am = of_means(equal_AmP).mean(-1), equal_AmP.mean(-1)
    count = means_Am.shape[-1]
    spread_A = means_Am.var(-1) if count > 1 else torch.zeros_like(within_A)
    pairs = Pairs(count, within_A, spread_A)
    return pass_errors(one_pass, pairs, of_means(over_AoP).sum(-1))


def pass_errors(one_pass: Pass, pairs: Pairs, over_A: Tensor) -> tuple[Tensor, Tensor]:
    """Return the variances of a pass's mean, by vectors and by batches not seen, (A).

    Args:
        one_pass: whose batches were drawn.
        pairs: moments of the equal batches.
        over_A: variance of the mean over the vectors of the batch that is over; 0 if
            there is none.
    """
    seen, all_of_them = pairs.seen, one_pass.num_equal
    vectors_A = one_pass.share**2 * pairs.within / seen
    vectors_A = vectors_A + (1 - one_pass.share) ** 2 * over_A
    if seen == all_of_them:
        return vectors_A, torch.zeros_like(vectors_A)
    between_A = (pairs.spread - pairs.within).clamp_min(0)
    return vectors_A, one_pass.share**2 * (1 / seen - 1 / all_of_them) * between_A


def of_means(draws_AmP: Tensor) -> Tensor:
    """Return the variance of the mean over the two vectors of each batch, (A, m)."""
    first_Am, second_Am = draws_AmP.unbind(-1)
    return (first_Am - second_Am).square() / 4
