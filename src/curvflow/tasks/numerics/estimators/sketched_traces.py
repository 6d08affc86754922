"""Traces by random vectors and sketches, stopped at a given standard error.

Hutch++ and XTrace find an orthonormal basis Q of the range of A times random vectors,
take the trace there exactly and that of the rest by random vectors. With P = I - QQ^T
the diagonal is that of 2 AQQ^T - QQ^TAQQ^T + PAP, so that every estimate splits into
diagonal blocks. Further letters: K columns of Q, L blocks of the
dimension D.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from curvflow.tasks.numerics.estimators.forms import TINY, Error, FormErrors
from curvflow.tasks.numerics.estimators.traces import estimate, random_vectors
from curvflow.tasks.numerics.krylov.low_rank import new_directions
from curvflow.tasks.numerics.operators.base import (
    AnyOperator,
    BatchedOperator,
    as_batched,
    product,
)


class Vectors(ABC):
    """Products with the random vectors of M models so far; more can be drawn."""

    def __init__(
        self,
        operator: BatchedOperator,
        seeds: Sequence[int],
        *,
        sizes: Sequence[int],
        distribution: str,
        block: int,
    ) -> None:
        """Begin without a vector.

        Args:
            operator: symmetric maps A of M models.
            seeds: seed of each model's vectors.
            sizes: sizes of the L consecutive blocks, D in sum.
            distribution: `rademacher` or `gaussian`.
            block: vectors multiplied at once, bounding memory.
        """
        self.operator, self.seeds, self.sizes = operator, list(seeds), list(sizes)
        self.distribution, self.block = distribution, block
        self.count = self.num_matvecs = 0

    def grow(self, count: int) -> None:
        """Draw vectors until there are `count` of them."""
        size = self.operator.shape[1]
        for start in range(self.count, count, self.block):
            rows = range(start, min(start + self.block, count))
            z_MDS = random_vectors(self.seeds, size, rows, self.distribution)
            self.take(z_MDS.to(self.operator.device))
        self.count = count

    def multiply(self, columns_MDS: Tensor) -> Tensor:
        """Return the products with columns, some at a time, and count them."""
        self.num_matvecs += columns_MDS.shape[2]
        parts = torch.split(columns_MDS, self.block, dim=2)
        return torch.cat([product(self.operator, part) for part in parts], dim=2)

    def select(self, models: Tensor) -> None:
        """Keep some of the models, by their indices (m,)."""
        models = models.to(self.operator.device)
        self.operator = self.operator.select(models)
        self.seeds = [self.seeds[m] for m in models.tolist()]

    @abstractmethod
    def take(self, z_MDS: Tensor) -> None:
        """Multiply further vectors."""


class Probed(Vectors):
    """Draws of traces by the random vectors of M models so far."""

    # Standard error of the mean relative to that of as many independent draws.
    spread = 1.0

    def sums(self, terms_MDS: Tensor) -> Tensor:
        """Return the sums over each block, (M, L, S)."""
        parts = torch.split(terms_MDS, self.sizes, dim=1)
        return torch.stack([part.sum(1) for part in parts], dim=1)

    def estimates(self, rel_sem: float | None) -> list[TraceDraws]:
        """Return the estimate of each model, and whether it is accurate enough."""
        draws_MLS = self.draws().cpu()
        return trace_estimates(
            draws_MLS,
            self.num_matvecs,
            rel_sem,
            error=self.error(draws_MLS),
            spread=self.spread,
        )

    def error(self, draws_MLS: Tensor) -> Error:
        """Return the error of the whole trace's mean: by the spread of its draws.

        Args:
            draws_MLS: all draws, on the CPU.
        """
        whole = estimate(draws_MLS.sum(1))
        return Error(self.spread * whole.sem, whole.freedom)

    @abstractmethod
    def draws(self) -> Tensor:
        """Return estimates of each diagonal block's trace, (M, L, S), float64."""


class PlainVectors(Probed):
    """Each vector by itself; none is kept."""

    def __init__(
        self, operator: BatchedOperator, seeds: Sequence[int], **given: Any
    ) -> None:
        super().__init__(operator, seeds, **given)
        self.draws_MLS = torch.zeros(
            (operator.shape[0], len(self.sizes), 0),
            dtype=torch.float64,
            device=operator.device,
        )

    def take(self, z_MDS: Tensor) -> None:
        """Multiply further vectors."""
        self.add(z_MDS, self.multiply(z_MDS))

    def add(self, z_MDS: Tensor, images_MDS: Tensor) -> None:
        """Take in vectors that were multiplied."""
        draws_MLS = self.sums(self.terms(z_MDS, images_MDS))
        self.draws_MLS = torch.cat([self.draws_MLS, draws_MLS], dim=2)

    def select(self, models: Tensor) -> None:
        """Keep some of the models, by their indices (m,)."""
        super().select(models)
        self.draws_MLS = self.draws_MLS[models]

    def terms(self, z_MDS: Tensor, images_MDS: Tensor) -> Tensor:
        """Return what a vector and its image give, entry by entry."""
        return z_MDS * images_MDS

    def draws(self) -> Tensor:
        """Return the sums of the terms over each block, (M, L, S)."""
        return self.draws_MLS


class Hutchinson(PlainVectors):
    """z.Az of each vector, whose images estimate the error.

    Reference:
        Hutchinson (1989), doi:10.1080/03610918908812806.
    """

    def __init__(
        self, operator: BatchedOperator, seeds: Sequence[int], **given: Any
    ) -> None:
        super().__init__(operator, seeds, **given)
        self.forms = FormErrors(self.distribution)

    def select(self, models: Tensor) -> None:
        """Keep some of the models, by their indices (m,)."""
        super().select(models)
        self.forms.select(models)

    def terms(self, z_MDS: Tensor, images_MDS: Tensor) -> Tensor:
        """Return z_i (Az)_i, and take them in with the images."""
        terms_MDS = super().terms(z_MDS, images_MDS)
        self.forms.add(terms_MDS, images_MDS)
        return terms_MDS

    def error(self, draws_MLS: Tensor) -> Error:
        """Return the error by the images, which know it better than the draws."""
        return self.forms.error()


class Sketched(Probed):
    """Vectors, their images, a basis of the range and its images."""

    # Of which vectors of a stream the range is taken: every so many.
    sketched_every = 1

    def __init__(
        self, operator: BatchedOperator, seeds: Sequence[int], **given: Any
    ) -> None:
        super().__init__(operator, seeds, **given)
        empty = torch.zeros(
            (*operator.shape[:2], 0), dtype=torch.float64, device=operator.device
        )
        self.vectors_MDS = self.images_MDS = empty
        self.basis_MDK = self.basis_images_MDK = empty

    def grow(self, count: int) -> None:
        """Draw vectors, and widen the range."""
        rows = torch.arange(self.count, count, device=self.operator.device)
        super().grow(count)
        self.widen(rows[rows % self.sketched_every == 0])

    def widen(self, sketched: Tensor) -> None:
        """Add the images of some vectors, by their numbers, to the range."""
        if not len(sketched):
            return
        added = new_directions(self.images_MDS[:, :, sketched], self.basis_MDK)
        images = self.multiply(added)
        self.basis_MDK = torch.cat([self.basis_MDK, added], dim=2)
        self.basis_images_MDK = torch.cat([self.basis_images_MDK, images], dim=2)

    def take(self, z_MDS: Tensor) -> None:
        """Multiply further vectors, and keep them."""
        self.vectors_MDS = torch.cat([self.vectors_MDS, z_MDS], dim=2)
        self.images_MDS = torch.cat([self.images_MDS, self.multiply(z_MDS)], dim=2)

    def select(self, models: Tensor) -> None:
        """Keep some of the models, by their indices (m,)."""
        super().select(models)
        self.vectors_MDS = self.vectors_MDS[models]
        self.images_MDS = self.images_MDS[models]
        self.basis_MDK = self.basis_MDK[models]
        self.basis_images_MDK = self.basis_images_MDK[models]

    def inner(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the diagonal of 2 AQQ^T - QQ^TAQQ^T, (M, D), Q^TAQ and QQ^TAQ."""
        H_MKK = self.basis_MDK.mT @ self.basis_images_MDK
        H_MKK = (H_MKK + H_MKK.mT) / 2
        turned_MDK = self.basis_MDK @ H_MKK
        both_MDK = (2 * self.basis_images_MDK - turned_MDK) * self.basis_MDK
        return both_MDK.sum(2), H_MKK, turned_MDK


class HutchPlusPlus(Sketched):
    """Every other vector finds the range, those between estimate the rest.

    The draws are independent given the range, so that the mean is unbiased and its
    standard error holds.

    Reference:
        Meyer, Musco, Musco and Woodruff (2021), doi:10.1137/1.9781611976496.16,
        Algorithm 1, with half of the vectors for the range instead of two thirds of
        the products.
    """

    sketched_every = 2

    def draws(self) -> Tensor:
        """Return estimates of each diagonal block's trace, (M, L, S // 2)."""
        inside_MD, _, _ = self.inner()
        outside_MDS, images_MDS = self._outside()
        return self.sums(inside_MD.unsqueeze(2) + outside_MDS * images_MDS)

    def error(self, draws_MLS: Tensor) -> Error:
        """Return the error by the images of the part outside of the range."""
        return self.error_outside()

    def error_outside(self) -> Error:
        """Return the error of the part that is outside of the range, (M,)."""
        forms, (_, images_MDS) = FormErrors(self.distribution), self._outside()
        forms.add(self.vectors_MDS[..., 1::2] * images_MDS, images_MDS)
        return forms.error()

    def _outside(self) -> tuple[Tensor, Tensor]:
        """Return Pz and PAPz of the vectors that estimate the rest, (M, D, S // 2)."""
        z_MDS, images_MDS = self.vectors_MDS[..., 1::2], self.images_MDS[..., 1::2]
        q_MKS = self.basis_MDK.mT @ z_MDS
        outside_MDS = z_MDS - self.basis_MDK @ q_MKS
        images_MDS = images_MDS - self.basis_images_MDK @ q_MKS
        images_MDS = images_MDS - self.basis_MDK @ (self.basis_MDK.mT @ images_MDS)
        return outside_MDS, images_MDS


class LeftOut(NamedTuple):
    """The range of the images of all others, as each vector meets it.

    Attributes:
        lost: unit directions that the range loses, or zero, in its basis, (M, K, S).
        less: the diagonals that it loses with them, (M, D, S).
        outside: the part of each vector outside of the range that is left, (M, D, S).
        images: the part of their images outside of it, (M, D, S).
    """

    lost: Tensor
    less: Tensor
    outside: Tensor
    images: Tensor


class XTrace(Sketched):
    """Every vector in turn estimates what the range of all others leaves.

    The draws are exchangeable but not independent. By Hoeffding's decomposition, the
    part of their mean that needs d vectors at once has d times the variance that their
    spread tells. Each vector meets the range of the others, so d = 2: intervals from
    the spread alone, as published, covered 77 to 91 % instead of 95 %.

    Reference:
        Epperly, Tropp and Webber (2024), doi:10.1137/23M1548323, sections 2.1 and 2.2;
        Gaussian vectors are set to the length that they have on average, as there.
        Hoeffding (1948), doi:10.1214/aoms/1177730196.
    """

    spread = 2**0.5

    def draws(self) -> Tensor:
        """Return the leave-one-out estimates of each block's trace, (M, L, S)."""
        left, (inside_MD, _, _) = self._left_out(), self.inner()
        scale_M1S = self._lengths(left.outside, left.lost)
        outside_MDS = scale_M1S * left.outside * left.images
        return self.sums(inside_MD.unsqueeze(2) - left.less + outside_MDS)

    def error(self, draws_MLS: Tensor) -> Error:
        """Return the greater error of two: by the spread, and by forms.

        Draws that depend on each other may happen to agree. Forms outside of the range
        are taken about their mean: neither vectors of a fixed length nor signs err by
        a multiple of the identity.
        """
        by_spread, left = super().error(draws_MLS), self._left_out()
        is_free = self.distribution == "gaussian"
        along_MDS = left.outside if is_free else self.vectors_MDS
        means_M1S = (along_MDS * left.images).sum(1, keepdim=True)
        means_M1S /= along_MDS.square().sum(1, keepdim=True).clamp_min(TINY)
        forms = FormErrors(self.distribution)
        forms.add(self.vectors_MDS * left.images, left.images - along_MDS * means_M1S)
        return by_spread._replace(sem=torch.maximum(by_spread.sem, forms.error().sem))

    def _left_out(self) -> LeftOut:
        Q, Z, z = self.basis_MDK, self.basis_images_MDK, self.vectors_MDS
        _, H_MKK, turned_MDK = self.inner()
        s_MKS = _lost(Q.mT @ self.images_MDS)
        U, V, W = Q @ s_MKS, Z @ s_MKS, turned_MDK @ s_MKS
        e_MS = (s_MKS * (H_MKK @ s_MKS)).sum(1)
        less_MDS = 2 * (V - W) * U + e_MS.unsqueeze(1) * U.square()
        q_MKS = Q.mT @ z
        along_M1S = (s_MKS * q_MKS).sum(1, keepdim=True)
        p_MDS = z - Q @ q_MKS + U * along_M1S
        images_MDS = self.images_MDS - Z @ q_MKS + V * along_M1S
        within_M1S = (U * images_MDS).sum(1, keepdim=True)
        images_MDS = images_MDS - Q @ (Q.mT @ images_MDS) + U * within_M1S
        return LeftOut(s_MKS, less_MDS, p_MDS, images_MDS)

    def _lengths(self, p_MDS: Tensor, s_MKS: Tensor) -> Tensor:
        """Return what brings Gaussian projections to their mean squared length."""
        if self.distribution != "gaussian":
            return torch.ones_like(p_MDS[:, :1])
        ranks_M1S = self.basis_MDK.square().sum((1, 2)).round()[:, None, None]
        free_M1S = p_MDS.shape[1] - ranks_M1S + s_MKS.square().sum(1, keepdim=True)
        return free_M1S / p_MDS.square().sum(1, keepdim=True).clamp_min(TINY)


def _lost(C_MKS: Tensor) -> Tensor:
    """Return the unit directions that the range loses without each column, or zero.

    Rows of the pseudo-inverse are orthogonal to all columns but one. A column that the
    others span, leverage below 1, takes nothing away.
    """
    inverse_MSK = torch.linalg.pinv(C_MKS, rtol=1e-10)
    leverage_MS = (inverse_MSK.mT * C_MKS).sum(1)
    norms_MS = inverse_MSK.norm(dim=2)
    is_alone_MS = leverage_MS > 1 - 1e-6
    unit_MSK = inverse_MSK / norms_MS.clamp_min(TINY).unsqueeze(2)
    return torch.where(is_alone_MS.unsqueeze(2), unit_MSK, 0.0).mT


METHODS: dict[str, type[Probed]] = {
    "hutchinson": Hutchinson,
    "hutch++": HutchPlusPlus,
    "xtrace": XTrace,
}


class ControlVariate(NamedTuple):
    """Effect of a matrix of known trace on the draws.

    Attributes:
        coefficient: by which its own draws were taken off, ().
        left: variance of the mean relative to that without it, ().
    """

    coefficient: Tensor
    left: Tensor


@dataclass(frozen=True)
class TraceDraws:
    """Estimates of one operator's trace by blocks.

    Attributes:
        draws: whose mean is the trace of each block, (L, S), float64, on the CPU.
        layer_sem: standard error of that mean, (L,).
        sem: standard error of the whole trace, the sum over blocks, ().
        freedom: degrees of freedom of that error, ().
        num_matvecs: products made.
        reached: whether the relative standard error requested was reached; True if
            none was.
        control: the control matrix of known trace; None if there was none.
    """

    draws: Tensor
    layer_sem: Tensor
    sem: Tensor
    freedom: Tensor
    num_matvecs: int
    reached: bool
    control: ControlVariate | None = None

    @property
    def layer_vectors(self) -> Tensor:
        """Part of the errors of blocks that the vectors have, (L,): all of it."""
        return self.layer_sem

    @property
    def num_vectors(self) -> int:
        """Vectors that see two dimensions apart: one a draw."""
        return self.draws.shape[1]

    @property
    def sem_vectors(self) -> Tensor:
        """Part of the error that the vectors have, (): all of it."""
        return self.sem

    @property
    def sem_batches(self) -> Tensor:
        """Part of the error of data that were not seen, (): none."""
        return torch.zeros_like(self.sem)


def traces(
    operator: AnyOperator,
    sizes: Sequence[int],
    seeds: Sequence[int],
    *,
    method: str,
    num_probes: int,
    distribution: str,
    block: int,
    rel_sem: float | None = None,
    max_probes: int | None = None,
) -> list[TraceDraws]:
    """Estimate traces by blocks, with as many vectors as the requested error takes.

    Looks are taken at `num_probes` vectors, twice, four times as many, ... up to
    `max_probes`, and nowhere else. A model stops at the first look where its standard
    error is at most `rel_sem` of its trace. Each model stops by itself.

    Args:
        operator: symmetric maps of M models, or one, (D, D).
        sizes: sizes of the L consecutive blocks, D in sum.
        seeds: seed of each model's vectors.
        method: `hutchinson`, `hutch++` or `xtrace`.
        num_probes: vectors at the first look.
        distribution: `rademacher` or `gaussian`.
        block: vectors multiplied at once, bounding memory.
        rel_sem: standard error of the whole trace requested, relative to it; None stops
            at the first look.
        max_probes: most vectors; None for `num_probes`.

    Returns:
        Per model its draws and its work.

    Examples:
        >>> from curvflow.tasks.numerics import Dense, traces
        >>> A = Dense(torch.diag(torch.arange(1.0, 41.0).double()))
        >>> (found,) = traces(
        ...     A,
        ...     [40],
        ...     [0],
        ...     method="hutch++",
        ...     num_probes=8,
        ...     distribution="gaussian",
        ...     block=8,
        ...     rel_sem=0.02,
        ...     max_probes=512,
        ... )
        >>> bool(found.reached), bool(abs(found.draws.mean() - 820) < 5 * found.sem)
        (True, True)
    """
    probed = METHODS[method](
        as_batched(operator), seeds, sizes=sizes, distribution=distribution, block=block
    )
    return until_reached(probed, num_probes, rel_sem, max_probes)


class Estimated(Protocol):
    """Estimate of one model after a look."""

    @property
    def reached(self) -> bool: ...  # noqa: D102 -- whether it stops there


E = TypeVar("E", bound=Estimated)


class Growing(Protocol[E]):
    """Draws of M models of which more can be drawn."""

    def grow(self, count: int) -> None:
        """Draw vectors until there are `count` of them."""

    def estimates(self, rel_sem: float | None) -> list[E]:
        """Return the estimate of each model, and whether it is accurate enough."""

    def select(self, models: Tensor) -> None:
        """Keep some of the models, by their indices (m,)."""


def until_reached(
    probed: Growing[E], num_probes: int, rel_sem: float | None, max_probes: int | None
) -> list[E]:
    """Draw until the standard error of each model is as small as requested.

    Args:
        probed: no vector of which was drawn.
        num_probes: vectors at the first look.
        rel_sem: standard error requested, relative to the estimate; None stops at the
            first look.
        max_probes: most vectors; None for `num_probes`.

    Returns:
        The estimates of each model, at the look where it stopped.
    """
    results: dict[int, E] = {}
    numbers: list[int] = []
    for look in looks(num_probes, None if rel_sem is None else max_probes):
        probed.grow(look)
        now = probed.estimates(rel_sem)
        numbers = numbers or list(range(len(now)))
        results.update(zip(numbers, now, strict=True))
        going = [index for index, estimated in enumerate(now) if not estimated.reached]
        if not going or rel_sem is None:
            break
        if len(going) < len(numbers):
            # A model alone is computed with a copy of itself.
            going = going * 2 if len(going) == 1 else going
            numbers = [numbers[index] for index in going]
            probed.select(torch.tensor(going))
    return [results[number] for number in range(len(results))]


def trace_estimates(
    draws_MLS: Tensor,
    num_matvecs: int,
    rel_sem: float | None,
    *,
    error: Error | None = None,
    spread: float = 1.0,
) -> list[TraceDraws]:
    """Return means and standard errors of draws, and whether these are small enough.

    Args:
        draws_MLS: of each diagonal block, on the CPU.
        num_matvecs: products made.
        rel_sem: standard error requested, relative to the sum over blocks.
        error: of the sum over blocks; None takes the spread of its draws.
        spread: standard error of a block's mean relative to that of independent draws.
    """
    whole, parts = estimate(draws_MLS.sum(1)), estimate(draws_MLS)
    sem_M, freedom_M = error or (whole.sem, whole.freedom)
    reached_M = sem_M <= (torch.inf if rel_sem is None else rel_sem) * whole.mean.abs()
    return [
        TraceDraws(
            draws_MLS[number],
            spread * parts.sem[number],
            sem_M[number],
            freedom_M[number],
            num_matvecs,
            rel_sem is None or bool(reached_M[number]),
        )
        for number in range(len(draws_MLS))
    ]


def looks(num_probes: int, max_probes: int | None) -> list[int]:
    """Return at how many vectors the standard error is looked at: by doubling.

    Args:
        num_probes: at the first look.
        max_probes: at the last one; None for the first alone.
    """
    counts = [num_probes]
    while max_probes is not None and counts[-1] < max_probes:
        counts.append(min(2 * counts[-1], max_probes))
    return counts
