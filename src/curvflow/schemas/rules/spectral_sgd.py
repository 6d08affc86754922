"""Gradient descent that takes its rate and momentum from the spectrum."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar, Literal

from pydantic import Field

from curvflow.schemas.explanations import Section
from curvflow.schemas.rules._base import Rule


class SpectralSgd(Rule):
    """Gradient descent with the rate and momentum that are best for a quadratic."""

    not_inside: ClassVar[bool] = True

    rule: Literal["spectral_sgd"] = "spectral_sgd"
    lr: float = Field(0.1, gt=0, description="learning rate before the first spectrum")
    momentum: Literal["polyak", "nesterov", "nesterov_quadratic"] = Field(
        "nesterov",
        description="heavy ball; Nesterov's with the rates for convex functions, or "
        "with those best for quadratics",
    )
    first_refresh: int = Field(
        0, ge=0, description="epochs completed when a spectrum is first looked at"
    )
    refresh_every: int = Field(20, ge=1, description="epochs between such looks")
    num_steps: int = Field(20, ge=2, description="Lanczos steps of a look")
    matrix: Literal["ggn", "hessian"] = Field(
        "hessian", description="whose spectrum: of generalised Gauss-Newton or Hessian"
    )
    bulk_above: float = Field(
        0.5,
        gt=0,
        le=1,
        description="weight above which the heaviest Ritz value is left out",
    )
    max_momentum: float = Field(0.99, ge=0, lt=1, description="largest momentum taken")
    weight_decay: float = Field(0.0, ge=0, description="added to g as weight_decay w")

    @property
    def chooses_momentum(self) -> bool:
        """True: the momentum changes as training goes on."""
        return True

    def scratch(
        self, shapes: Sequence[tuple[int, ...]], batch_size: int, outputs: int
    ) -> int:
        """Return what the Krylov basis and a product hold."""
        return (self.num_steps + 8) * sum(map(prod, shapes))

    @property
    def has_preconditioner(self) -> bool:
        """True: it is the identity."""
        return True


RULE = SpectralSgd

EXPLANATION = Section(
    group="Rules that look at the spectrum",
    summary="takes rate and momentum from the spectrum",
    text="""\
v ← ρ v + g + λ w, w ← w − α v, with λ = `weight_decay`; with Nesterov's momentum the
step is along g + λ w + ρ v instead, v being the new velocity. α and ρ are those that
are best for a quadratic whose eigenvalues lie between λ_P and λ₁. With κ = λ₁/λ_P, r
= (√κ − 1)/(√κ + 1) and s = √(3κ + 1):

| `momentum` | α | ρ | error per step |
|---|---|---|---|
| `polyak` | 4 / (√λ₁ + √λ_P)² | r² | r |
| `nesterov` | 1 / λ₁ | r | 1 − 1/√κ |
| `nesterov_quadratic` | 4 / (3 λ₁ + λ_P) | (s − 2)/(s + 2) | 1 − 2/s |

The source prints α = 2/(√λ₁ + √λ_P) and √(λ_P/λ₁) for the first two, which are of the
wrong unit: on eigenvalues between 0.5 and 50 the first multiplies the error by 11 a
step.

The spectrum is that of `num_steps` Lanczos steps from random signs on the first batch
of epoch `first_refresh`, counted from 0, and of each `refresh_every` epochs after it.
If the Ritz value of the largest weight weighs more than `bulk_above`, it stands for
the bulk near zero and is left out; so are those that are not positive. λ_P and λ₁ are
the smallest and the largest left, plus λ. ρ is at most `max_momentum`: a larger one
counts as a larger λ_P, for which α is still stable. Until the first look, and where a
look finds no positive value, what applied before stays: at the beginning α = `lr`,
without momentum. A schedule multiplies α.

What was chosen is recorded: the curves `lr` and `chosen_momentum` of `train` are the
rates in force in the epoch that ends. α is that of one batch, so small batches, whose
curvature is sharper than that of all the data, choose small rates.
""",
    source="""\
Granziol (2020), section 4.3.2 and eq. 4.3; Lessard, Recht and Packard (2016),
arXiv:1408.3595, Proposition 1, for the rates. That negative Ritz values are left out
and ρ is bounded by way of λ_P is added.
""",
    example="""\
axes:
  rule:
    ssgdmn: {rule: spectral_sgd, momentum: nesterov, refresh_every: 20, num_steps: 20}
    ssgdm: {rule: spectral_sgd, lr: 0.01, momentum: polyak, first_refresh: 1,
            refresh_every: 5, matrix: ggn, bulk_above: 0.5, max_momentum: 0.95,
            weight_decay: 0.0005}
""",
)
