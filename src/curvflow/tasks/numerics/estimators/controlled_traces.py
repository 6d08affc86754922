"""Traces by random vectors, with a similar matrix of known trace as a control variate.

For any c the mean of z.Az - c (z.Kz - tr K) is tr A, whatever K is: a control variate.
The c that leaves the least is learnt from half of the vectors and used on the other
half, so that draws are unbiased and their errors honest. Further letters: L blocks of
the dimension D, F the two halves, P the pairs AA, AK and KK.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from curvflow.tasks.numerics.estimators.forms import (
    EQUAL,
    TINY,
    Error,
    form_error,
    spread_tells,
)
from curvflow.tasks.numerics.estimators.sketched_traces import (
    ControlVariate,
    Probed,
    TraceDraws,
    until_reached,
)
from curvflow.tasks.numerics.operators.base import BatchedOperator


class Control(Protocol):
    """A symmetric map K of M models of which the diagonal is known."""

    @property
    def diagonal(self) -> Tensor:
        """Return the diagonal, (M, D)."""

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with columns (M, D, S)."""

    def select(self, models: Tensor) -> Control:
        """Return those of some of the models, by their indices (m,)."""


class _Half:
    """Regression of z.Az on z.Kz, over half of the vectors of M models."""

    def __init__(self, *, signs: bool) -> None:
        self._signs, self.count = signs, 0
        self._inner_MPS = self._means_MDJ = self._apart_MP = torch.zeros(())

    def add(self, z_MDS: Tensor, images_MDS: Tensor, known_MDS: Tensor) -> None:
        """Take further vectors, Az and Kz in."""
        more = z_MDS.shape[2]
        if not more:
            return
        inner_MPS = _pairs(images_MDS, known_MDS)
        terms = [z_MDS * images_MDS, z_MDS * known_MDS]
        means_MDJ = torch.stack([term.mean(2) for term in terms], dim=2)
        a, k = ((term - term.mean(2, keepdim=True)).flatten(1) for term in terms)
        apart_MP = _pairs(a, k)
        if self.count:
            away_MDJ = means_MDJ - self._means_MDJ
            weight = self.count * more / (self.count + more)
            between_MP = _pairs(away_MDJ[..., 0], away_MDJ[..., 1])
            apart_MP = self._apart_MP + apart_MP + weight * between_MP
            part = more / (self.count + more)
            means_MDJ = self._means_MDJ + away_MDJ * part
            inner_MPS = torch.cat([self._inner_MPS, inner_MPS], dim=2)
        self._inner_MPS, self._means_MDJ = inner_MPS, means_MDJ
        self._apart_MP, self.count = apart_MP, self.count + more

    def select(self, models: Tensor) -> None:
        """Keep some of the models, by their indices (m,)."""
        self._inner_MPS = self._inner_MPS[models]
        self._means_MDJ = self._means_MDJ[models]
        self._apart_MP = self._apart_MP[models]

    @property
    def slope(self) -> Tensor:
        """The c by which z.Az - c z.Kz varies least, (M,); 0 where K is of no use."""
        by_entries = self._signs and spread_tells(self._means_MDJ.shape[1], self.count)
        whole_MP = self._inner_MPS.sum(2)
        _, both_M, known_M = (self._apart_MP if by_entries else whole_MP).unbind(1)
        # What signs see of a diagonal K varies by rounding alone.
        is_seen_M = known_M > EQUAL**2 * whole_MP[:, 2]
        return torch.where(is_seen_M, both_M / known_M, 0.0)

    def error(self, c_M: Tensor) -> Error:
        """Return the error of the mean of z.Az - c z.Kz, (M,), on the CPU."""
        weights_MP = torch.stack([torch.ones_like(c_M), -2 * c_M, c_M.square()], dim=1)
        squares_MS = (weights_MP.unsqueeze(2) * self._inner_MPS).sum(1)
        apart_M = (weights_MP * self._apart_MP).sum(1)
        size = self._means_MDJ.shape[1]
        squares = squares_MS.clamp(min=0), apart_M.clamp(min=0)
        return form_error(*squares, size, signs=self._signs)


def _pairs(a: Tensor, k: Tensor) -> Tensor:
    """Return the inner products of a and a, a and k, k and k, stacked behind M."""
    return torch.stack([(a * a).sum(1), (a * k).sum(1), (k * k).sum(1)], dim=1)


class Controlled(Probed):
    """Each vector by itself, with A and with K; no vector is kept."""

    def __init__(
        self,
        operator: BatchedOperator,
        seeds: Sequence[int],
        *,
        control: Control,
        **given: Any,
    ) -> None:
        """Begin without a vector.

        Args:
            operator: A of M models.
            seeds: seed of each model's vectors.
            control: K.
            given: as for `Vectors`.
        """
        super().__init__(operator, seeds, **given)
        self._control = control
        self._means_ML1 = self.sums(control.diagonal.double().unsqueeze(2))
        signs = self.distribution == "rademacher"
        self._halves = _Half(signs=signs), _Half(signs=signs)
        self._plain_MLS = self._known_MLS = self._means_ML1[..., :0]

    def take(self, z_MDS: Tensor) -> None:
        """Multiply further vectors; every other one belongs to the same half."""
        images_MDS, known_MDS = self.multiply(z_MDS), self._control @ z_MDS
        first = self._plain_MLS.shape[2]
        plain_MLS = self.sums(z_MDS * images_MDS)
        known_MLS = self.sums(z_MDS * known_MDS) - self._means_ML1
        self._plain_MLS = torch.cat([self._plain_MLS, plain_MLS], dim=2)
        self._known_MLS = torch.cat([self._known_MLS, known_MLS], dim=2)
        for number, half in enumerate(self._halves):
            alternate = slice((first + number) % 2, None, 2)
            half.add(
                z_MDS[..., alternate],
                images_MDS[..., alternate],
                known_MDS[..., alternate],
            )

    def select(self, models: Tensor) -> None:
        """Keep some of the models, by their indices (m,)."""
        super().select(models)
        self._control = self._control.select(models)
        self._means_ML1 = self._means_ML1[models]
        self._plain_MLS = self._plain_MLS[models]
        self._known_MLS = self._known_MLS[models]
        for half in self._halves:
            half.select(models)

    @property
    def slopes(self) -> tuple[Tensor, Tensor]:
        """The c of each half of the vectors, learnt from the other, (M,) each."""
        first, second = self._halves
        return second.slope, first.slope

    def draws(self) -> Tensor:
        """Return z.Az - c (z.Kz - tr K) of each block, (M, L, S)."""
        c_M1S = self._plain_MLS.new_zeros(len(self._plain_MLS), 1, self.count)
        for number, c_M in enumerate(self.slopes):
            c_M1S[..., number::2] = c_M[:, None, None]
        return self._plain_MLS - c_M1S * self._known_MLS

    def error(self, draws_MLS: Tensor) -> Error:
        """Return the error by the images, of vectors that c was not learnt from."""
        return self._error(self.slopes)

    def _error(self, slopes: tuple[Tensor, Tensor]) -> Error:
        parts = [
            (half.count / self.count, half.error(c_M))
            for half, c_M in zip(self._halves, slopes, strict=True)
        ]
        variances = torch.stack([(part * each.sem).square() for part, each in parts])
        freedoms = torch.stack([each.freedom for _, each in parts])
        whole_M = variances.sum(0)
        spread_M = (variances.square() / freedoms).sum(0).clamp_min(TINY)
        freedom_M = (whole_M.square() / spread_M).clamp_min(freedoms.amin(0))
        return Error(whole_M.sqrt(), freedom_M)

    def estimates(self, rel_sem: float | None) -> list[TraceDraws]:
        """Return the estimate of each model, and whether it is accurate enough."""
        estimates, slopes = super().estimates(rel_sem), self.slopes
        none = torch.zeros_like(slopes[0])
        plain_M = self._error((none, none)).sem
        left_M = (self._error(slopes).sem / plain_M).square()
        left_M = torch.where(plain_M > 0, left_M, 1.0)
        c_M = torch.stack(slopes).mean(0).cpu()
        controls = map(ControlVariate, c_M, left_M)
        return [replace(f, control=c) for f, c in zip(estimates, controls, strict=True)]


def controlled_traces(
    operator: BatchedOperator,
    control: Control,
    sizes: Sequence[int],
    seeds: Sequence[int],
    *,
    num_probes: int,
    distribution: str,
    block: int,
    rel_sem: float | None = None,
    max_probes: int | None = None,
) -> list[TraceDraws]:
    """Estimate traces by blocks with the same vectors on a matrix of known trace.

    One coefficient is taken for all blocks, so that these add up to the whole.

    Args:
        operator: symmetric maps A of M models, (M, D, D).
        control: K of the same models, such as Kronecker factors of A.
        sizes: sizes of the L consecutive blocks, D in sum.
        seeds: seed of each model's vectors.
        num_probes: vectors at the first look, four or more.
        distribution: `rademacher` or `gaussian`.
        block: vectors multiplied at once, bounding memory.
        rel_sem: standard error of the whole trace requested, relative to it; None stops
            at the first look.
        max_probes: most vectors; None for `num_probes`.

    Returns:
        Per model its draws, the coefficient, and how much of the variance is left.

    Raises:
        InputError: a product holds NaN or infinity.

    Reference:
        Owen (2013), Monte Carlo theory, section 8.9, for control variates; Hutchinson
        (1989), doi:10.1080/03610918908812806.
    """
    given: dict[str, Any] = {"distribution": distribution, "block": block}
    probed = Controlled(operator, seeds, control=control, sizes=sizes, **given)
    return until_reached(probed, num_probes, rel_sem, max_probes)
