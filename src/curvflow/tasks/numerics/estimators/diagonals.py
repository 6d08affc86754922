"""Diagonals by random vectors, with an error of each entry.

Of a vector z of independent entries with mean 0 and variance 1,

    (Az)_i = A_ii z_i + u_i,    u_i = sum over j != i of A_ij z_j,

where u_i does not depend on z_i: the entry is the slope of a line through the origin,
and what the line leaves over shows its error. Of signs the slope is the mean of
z_i (Az)_i; of Gaussian vectors u_i is normal, so that Student's interval is exact.
Sums are kept, no vector is. Further letters: L blocks of the dimension D, P vectors of
a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from scipy.special import stdtrit
from torch import Tensor

from curvflow.tasks.numerics.estimators.batch_traces import (
    PAIR,
    Batches,
    BatchTrace,
    Pairs,
    Pass,
    of_means,
    pass_errors,
)
from curvflow.tasks.numerics.estimators.forms import (
    EQUAL,
    MANY,
    TINY,
    pairs_differ,
    spread_tells,
)
from curvflow.tasks.numerics.estimators.intervals import (
    HIGH,
    leaning_interval,
    skewness_of_mean,
    student_interval,
    wider_interval,
)
from curvflow.tasks.numerics.estimators.sketched_traces import Vectors, until_reached
from curvflow.tasks.numerics.operators.base import (
    AnyOperator,
    BatchedOperator,
    as_batched,
    as_sample_mean,
)


@dataclass(frozen=True)
class Diagonal:
    """Estimate of one operator's diagonal, float64 on the CPU.

    Attributes:
        value: the entries, (D,).
        sem: standard error of each, (D,).
        low: lower ends of intervals of 95 %, each for an entry, (D,).
        high: upper ends, (D,).
        layer_mean: mean of the entries of each block, (L,).
        layer_sem: standard error of that mean, (L,).
        layer_low: lower ends of intervals of 95 %, each for a mean, (L,).
        layer_high: upper ends, (L,).
        num_matvecs: products made, of batches as much work.
        reached: whether the error requested was reached; True if none was.
    """

    value: Tensor
    sem: Tensor
    low: Tensor
    high: Tensor
    layer_mean: Tensor
    layer_sem: Tensor
    layer_low: Tensor
    layer_high: Tensor
    num_matvecs: int
    reached: bool

    @property
    def rel_sem(self) -> Tensor:
        """Root of the sum of squared standard errors, by the norm of the entries."""
        return relative_error(self.value, self.sem)


def relative_error(value_D: Tensor, sem_D: Tensor) -> Tensor:
    """Return the norm of errors by that of the entries, (); 0 where both are 0.

    Args:
        value_D: entries, along the last dimension.
        sem_D: their standard errors.
    """
    error, norm = (torch.linalg.vector_norm(part, dim=-1) for part in (sem_D, value_D))
    return torch.where(error > 0, error / norm, error)


class _Lines(Vectors):
    """A line through the origin for each entry, from z_i to (Az)_i.

    Reference:
        Bekas, Kokiopoulou and Saad (2007), doi:10.1016/j.apnum.2007.01.003, section 3.
    """

    def __init__(
        self, operator: BatchedOperator, seeds: Sequence[int], **given: Any
    ) -> None:
        super().__init__(operator, seeds, **given)
        empty = torch.zeros(
            operator.shape[:2], dtype=torch.float64, device=operator.device
        )
        # Slopes, sums of z^2, and of what the lines leave over, squared.
        self._slopes_MD = self._squares_MD = self._rest_MD = empty

    def take(self, z_MDS: Tensor) -> None:
        """Multiply further vectors, and bring the lines up to them."""
        images_MDS = self.multiply(z_MDS)
        squares_MD = z_MDS.square().sum(2)
        slopes_MD = (z_MDS * images_MDS).sum(2) / squares_MD
        off_MDS = torch.addcmul(images_MDS, z_MDS, slopes_MD.unsqueeze(2), value=-1)
        moved_MD, total_MD = slopes_MD - self._slopes_MD, self._squares_MD + squares_MD
        share_MD = squares_MD / total_MD
        between_MD = self._squares_MD * share_MD * moved_MD.square()
        self._rest_MD = self._rest_MD + off_MDS.square_().sum(2) + between_MD
        self._slopes_MD = self._slopes_MD + share_MD * moved_MD
        self._squares_MD = total_MD

    def select(self, models: Tensor) -> None:
        """Keep some of the models, by their indices (m,)."""
        super().select(models)
        models = models.to(self.operator.device)
        self._slopes_MD, self._squares_MD, self._rest_MD = (
            held_MD[models]
            for held_MD in (self._slopes_MD, self._squares_MD, self._rest_MD)
        )

    def estimates(self, rel_sem: float | None) -> list[Diagonal]:
        """Return the estimate of each model, and whether it is accurate enough."""
        sums = (self._slopes_MD, self._squares_MD, self._rest_MD)
        slopes_MD, squares_MD, rest_MD = (held_MD.cpu() for held_MD in sums)
        return [
            self._estimate(slopes_MD[model], squares_MD[model], rest_MD[model], rel_sem)
            for model in range(len(slopes_MD))
        ]

    def _estimate(
        self, value_D: Tensor, squares_D: Tensor, rest_D: Tensor, rel_sem: float | None
    ) -> Diagonal:
        variance_D, count = rest_D / (self.count - 1), self.count
        law_D = rest_D / count + value_D.square()
        if self.distribution == "rademacher":
            variance_D, half_D = _of_signs(variance_D, law_D, count)
            low_D, high_D = value_D - half_D, value_D + half_D
            sem_D = (variance_D / count).sqrt()
        else:
            sem_D = (variance_D / squares_D).sqrt()
            low_D, high_D = student_interval(value_D, sem_D, count - 1)
        mean_L, layer_sem_L = _means(value_D, self.sizes), self._layer_sem(sem_D)
        half_L = self._layer_half(sem_D, (law_D / count).sqrt())
        # The error of one entry is known, and needs no bound.
        of_one_L = torch.tensor(self.sizes) == 1
        return Diagonal(
            value_D,
            sem_D,
            low_D,
            high_D,
            mean_L,
            layer_sem_L,
            torch.where(of_one_L, _means(low_D, self.sizes), mean_L - half_L),
            torch.where(of_one_L, _means(high_D, self.sizes), mean_L + half_L),
            self.num_matvecs,
            _is_reached(value_D, sem_D, rel_sem),
        )

    def _layer_sem(self, sem_D: Tensor) -> Tensor:
        """Return an upper bound of the errors of means, (L,), at most √2 too large.

        Errors of i and j share A_ij^2, which the squared errors of both hold. So their
        sum has at most twice the sum of these, and as much if it is that of all.
        """
        parts = torch.split(sem_D.square(), self.sizes)
        return torch.stack([(2 * part.sum()).sqrt() / len(part) for part in parts])

    def _layer_half(self, sem_D: Tensor, by_law_D: Tensor) -> Tensor:
        """Return half of an interval of 95 % of the mean of each block, (L,).

        Student's; of signs as far as that of an entry at least, which takes deviations
        about each value in question: see `_of_signs`.

        Args:
            sem_D: standard error of each entry.
            by_law_D: that by the mean of (Az)_i^2.
        """
        sem_L, pairs_L = self._layer_sem(sem_D), self._pairs(sem_D)
        student_L = _quantile((self.count - 1) * pairs_L) * sem_L
        if self.distribution != "rademacher":
            return student_L
        degrees_L = self.count * pairs_L
        factor_L = _quantile(degrees_L)
        left_L = (degrees_L - factor_L.square()).clamp_min(TINY)
        about_truth_L = factor_L * sem_L * ((degrees_L - 1) / left_L).sqrt()
        most_L = factor_L * self._layer_sem(by_law_D)
        return torch.maximum(student_L, torch.minimum(about_truth_L, most_L))

    def _pairs(self, sem_D: Tensor) -> Tensor:
        """Return how many pairs of entries make up the errors of blocks, (L,).

        As often their bound has the degrees of freedom of one entry; at least once.
        """
        parts = torch.split(sem_D.square(), self.sizes)
        sums_L, squares_L = (
            torch.stack([part.pow(power).sum() for part in parts]) for power in (1, 2)
        )
        alike_L = sums_L.square() / squares_L.clamp_min(TINY)
        return (alike_L / 2).clamp(1.0, MANY)


def _quantile(degrees: Tensor) -> Tensor:
    """Return Student's, in errors, at the upper end of an interval of 95 %."""
    return torch.as_tensor(stdtrit(degrees.numpy(), HIGH))


def _of_signs(spread_D: Tensor, law_D: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the variance of u_i and half of an interval of 95 %.

    The signs of two dimensions that are coupled beyond all others may be all alike in
    few vectors; then draws agree that are all wrong, and those that nearly agree have
    too small a spread. The mean of (Az)_i^2 is never less in the mean, and stands for
    the variance where draws cannot tell it, as for traces. Intervals take the squared
    deviations about each value in question, with S degrees of freedom, and reach as far
    as Student's at least, and by the mean of (Az)_i^2 at most.

    Args:
        spread_D: by what the lines leave over.
        law_D: mean of (Az)_i^2.
        count: S.
    """
    by_law_D = torch.zeros_like(spread_D, dtype=torch.bool)
    if not spread_tells(len(spread_D), count):
        by_law_D = ~by_law_D
    elif not pairs_differ(len(spread_D), count):
        by_law_D = spread_D <= EQUAL**2 * law_D
    student, about_truth = (stdtrit(n, HIGH) ** 2 for n in (count - 1, count))
    most_D = about_truth * law_D / count
    rest_D = about_truth * spread_D * (count - 1) / count
    rest_D = rest_D / max(count - about_truth, TINY)
    wide_D = torch.where(by_law_D, most_D, torch.minimum(rest_D, most_D))
    half_D = torch.maximum(student * spread_D / count, wide_D).sqrt()
    return torch.where(by_law_D, law_D, spread_D), half_D


def diagonals(
    operator: AnyOperator,
    sizes: Sequence[int],
    seeds: Sequence[int],
    *,
    num_probes: int,
    distribution: str,
    block: int,
    rel_sem: float | None = None,
    max_probes: int | None = None,
) -> list[Diagonal]:
    """Estimate diagonals: sum of z_i (Az)_i by sum of z_i^2, of each entry.

    Looks are taken as by `traces`. A model stops at the first one where the root of the
    sum of its squared standard errors is at most `rel_sem` of the norm of the entries.

    Args:
        operator: symmetric maps of M models, or one, (D, D).
        sizes: sizes of the L consecutive blocks, D in sum.
        seeds: seed of each model's vectors.
        num_probes: vectors at the first look, two at least.
        distribution: `rademacher` or `gaussian`.
        block: vectors multiplied at once, bounding memory.
        rel_sem: relative error requested; None stops at the first look.
        max_probes: most vectors; None for `num_probes`.

    Returns:
        Per model its estimate and its work.

    Examples:
        >>> from curvflow.tasks.numerics import Dense, diagonals
        >>> A = Dense(torch.diag(torch.arange(1.0, 4.0).double()))
        >>> (found,) = diagonals(
        ...     A, [3], [0], num_probes=32, distribution="rademacher", block=16
        ... )
        >>> found.value.tolist(), found.sem.tolist()
        ([1.0, 2.0, 3.0], [0.0, 0.0, 0.0])

    Reference:
        Bekas, Kokiopoulou and Saad (2007), doi:10.1016/j.apnum.2007.01.003.
    """
    lines = _Lines(
        as_batched(operator), seeds, sizes=sizes, distribution=distribution, block=block
    )
    return until_reached(lines, num_probes, rel_sem, max_probes)


class _Sums:
    """Sums of z_i (Az)_i of the batches of one pass, two draws each."""

    def __init__(self, empty_MD: Tensor) -> None:
        self.count = 0
        # Means over both draws: their mean, squared distances, and errors, summed.
        self._mean_MD = self._apart_MD = self._within_MD = empty_MD
        self._over_MD = self._over_within_MD = empty_MD

    def add(self, draws_MkDP: Tensor, *, is_over: bool) -> None:
        """Take the draws of equal batches in, or of the batch that is over."""
        means_MkD, within_MD = draws_MkDP.mean(3), of_means(draws_MkDP).sum(1)
        if is_over:
            self._over_MD, self._over_within_MD = means_MkD.squeeze(1), within_MD
            return
        more = means_MkD.shape[1]
        total, mean_MD = self.count + more, means_MkD.mean(1)
        moved_MD = mean_MD - self._mean_MD
        between_MD = self.count * more / total * moved_MD.square()
        apart_MD = more * means_MkD.var(1, correction=0) + between_MD
        self._apart_MD = self._apart_MD + apart_MD
        self._mean_MD = self._mean_MD + more / total * moved_MD
        self._within_MD = self._within_MD + within_MD
        self.count = total

    def mean(self, of: Pass) -> Tensor:
        """Return the estimate of the pass, (M, D)."""
        return of.share * self._mean_MD + (1 - of.share) * self._over_MD

    def errors(self, of: Pass) -> tuple[Tensor, Tensor]:
        """Return its variances, by vectors and by batches not seen, (M, D)."""
        spread_MD = self._apart_MD / max(self.count - 1, 1)
        pairs = Pairs(self.count, self._within_MD / self.count, spread_MD)
        return pass_errors(of, pairs, self._over_within_MD)

    def select(self, models: Tensor) -> None:
        """Keep some of the models, by their indices (m,)."""
        self._mean_MD, self._apart_MD = self._mean_MD[models], self._apart_MD[models]
        self._within_MD, self._over_MD = self._within_MD[models], self._over_MD[models]
        self._over_within_MD = self._over_within_MD[models]


class _Entries(Batches):
    """Entries of the diagonals of M models so far: of whole passes, and of the last."""

    def __init__(
        self, operator: AnyOperator, seeds: Sequence[int], **given: Any
    ) -> None:
        super().__init__(as_sample_mean(as_batched(operator)), seeds, **given)
        empty = torch.zeros(
            (len(seeds), self.operator.shape[1]),
            dtype=torch.float64,
            device=self.operator.device,
        )
        self._last, self._sums = self.passes[0], _Sums(empty)
        # Over whole passes, the means and their variances.
        self._means_MD = self._vectors_MD = empty
        # Over all batches, z_i (Az)_i squared, and what the pairs differ by.
        self._squares_MD = self._within_MD = empty

    def observe(self, latest: Pass, terms_MkDP: Tensor) -> None:
        """Take z_i (Az)_i of further batches in."""
        if latest is not self._last:
            self._means_MD = self._means_MD + self._sums.mean(self._last)
            self._vectors_MD = self._vectors_MD + self._sums.errors(self._last)[0]
            self._last, self._sums = latest, _Sums(torch.zeros_like(self._means_MD))
        draws_MkDP = terms_MkDP.double()
        self._sums.add(draws_MkDP, is_over=bool(latest.rest and not latest.units))
        self._within_MD = self._within_MD + of_means(draws_MkDP).sum(1)
        self._squares_MD = self._squares_MD + draws_MkDP.square().sum((1, 3))

    def select(self, models: Tensor) -> None:
        """Keep some of the models, by their indices (m,)."""
        super().select(models)
        models = models.to(self.operator.device)
        self._sums.select(models)
        self._means_MD = self._means_MD[models]
        self._vectors_MD = self._vectors_MD[models]
        self._squares_MD = self._squares_MD[models]
        self._within_MD = self._within_MD[models]

    def estimates(self, rel_sem: float | None) -> list[Diagonal]:
        """Return the estimate of each model, and whether it is accurate enough."""
        passes = len(self.passes)
        vectors_MD, batches_MD = self._sums.errors(self._last)
        mean_MD = (self._means_MD + self._sums.mean(self._last)) / passes
        vectors_MD = self._by_law((self._vectors_MD + vectors_MD) / passes**2)
        sem_MD = (vectors_MD + batches_MD / passes**2).sqrt().cpu()
        together = zip(
            self.traces(None), mean_MD.cpu(), sem_MD, vectors_MD.cpu(), strict=True
        )
        return [self._estimate(*each, rel_sem) for each in together]

    def _by_law(self, vectors_MD: Tensor) -> Tensor:
        """Return the variances, by the law of signs where pairs do not give them.

        Signs of two dimensions are alike, or opposite, in both vectors of a batch in
        half of the cases. What is so in all of B batches is so in B + 1 vectors.
        """
        count = sum(one_pass.count for one_pass in self.passes)
        size = vectors_MD.shape[1]
        if self.distribution != "rademacher" or pairs_differ(size, count + 1):
            return vectors_MD
        law_MD = self._squares_MD / (2 * count)
        by_law_MD = self._within_MD <= EQUAL**2 * count * law_MD
        if not spread_tells(size, count + 1):
            by_law_MD = torch.ones_like(by_law_MD)
        return torch.where(by_law_MD, law_MD / (2 * count), vectors_MD)

    def _interval(self, value_D: Tensor, sem_D: Tensor) -> tuple[Tensor, Tensor]:
        """Return an interval of 95 % of each entry.

        Squares of Gaussian numbers are skewed. Signs tell the less: half of the pairs
        have no difference where one coupling is all there is.
        """
        if self.distribution != "rademacher":
            return wider_interval(value_D, sem_D, self._freedom(len(value_D)))
        return student_interval(value_D, sem_D, self._freedom(len(value_D)))

    def _freedom(self, size: int) -> float:
        """Return the degrees of freedom of the errors of B batches, for D entries."""
        count = sum(one_pass.count for one_pass in self.passes)
        is_sure = self.distribution == "rademacher" and spread_tells(size, count + 1)
        return count / PAIR if is_sure else count - 1.0

    def _layer_interval(
        self, trace: BatchTrace, vectors_D: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return an interval of 95 % of the trace of each block, (L,).

        Entries i and j share A_ij^2, so that the variance of their sum, by vectors, is
        once to twice the sum of theirs. Many entries know theirs better than few pairs
        do the block's, which is taken between these two.

        Args:
            trace: of each block.
            vectors_D: variance of each entry by vectors.
        """
        parts = torch.split(vectors_D, self.sizes)
        least_L = torch.stack([part.sum() for part in parts])
        most_L = torch.where(torch.tensor(self.sizes) > 1, 2 * least_L, least_L)
        by_vectors_L = trace.layer_vectors.square()
        within_L = by_vectors_L.clamp(least_L, most_L)
        sem_L = (trace.layer_sem.square() - by_vectors_L + within_L).sqrt()
        freedom = self._freedom(len(vectors_D))
        skewness_L = skewness_of_mean(trace.draws)
        return leaning_interval(trace.draws.mean(1), sem_L, freedom, skewness_L)

    def _estimate(
        self,
        trace: BatchTrace,
        value_D: Tensor,
        sem_D: Tensor,
        vectors_D: Tensor,
        rel_sem: float | None,
    ) -> Diagonal:
        low_D, high_D = self._interval(value_D, sem_D)
        sizes_L = torch.tensor(self.sizes)
        low_L, high_L = self._layer_interval(trace, vectors_D)
        return Diagonal(
            value_D,
            sem_D,
            low_D,
            high_D,
            _means(value_D, self.sizes),
            trace.layer_sem / sizes_L,
            low_L / sizes_L,
            high_L / sizes_L,
            trace.num_matvecs,
            _is_reached(value_D, sem_D, rel_sem),
        )


def batch_diagonals(
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
) -> list[Diagonal]:
    """Estimate diagonals, two random vectors for each batch of the data.

    Batches and vectors are those of `batch_traces`, and so are the parts of the errors.
    The entries are means of z_i (Az)_i.

    Args:
        operator: means over samples, of M models, or of one.
        sizes: sizes of the L consecutive blocks, D in sum.
        seeds: seed of each model's vectors and batches.
        batch_size: samples per batch, B.
        num_probes: vectors at the first look, two for each batch.
        distribution: `rademacher` or `gaussian`.
        batches_per_pass: multiplied at once, each with a copy of the weights.
        rel_sem: as for `diagonals`.
        max_probes: as for `batch_traces`.

    Returns:
        Per model its estimate and its work.

    Raises:
        InputError: the operator is no mean over samples, or a product is not finite.

    Examples:
        >>> from curvflow.tasks.numerics import batch_diagonals, hessian
        >>> net = torch.nn.Linear(1, 1, bias=False).double()
        >>> x = torch.arange(1.0, 9.0).double().unsqueeze(1)
        >>> (found,) = batch_diagonals(
        ...     hessian(net, "sse", (x, x)),
        ...     [1],
        ...     [0],
        ...     batch_size=2,
        ...     num_probes=8,
        ...     distribution="rademacher",
        ... )
        >>> round(found.value.item(), 9), found.sem.item()  # 2 x^2, its mean
        (51.0, 0.0)
    """
    entries = _Entries(
        operator,
        seeds,
        sizes=sizes,
        batch_size=batch_size,
        distribution=distribution,
        batches_per_pass=batches_per_pass,
    )
    return until_reached(entries, num_probes, rel_sem, max_probes)


def _means(value_D: Tensor, sizes: Sequence[int]) -> Tensor:
    return torch.stack([part.mean() for part in torch.split(value_D, list(sizes))])


def _is_reached(value_D: Tensor, sem_D: Tensor, rel_sem: float | None) -> bool:
    return rel_sem is None or bool(relative_error(value_D, sem_D) <= rel_sem)
