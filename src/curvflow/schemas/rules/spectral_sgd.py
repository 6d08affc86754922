"""Gradient descent that takes its rate and momentum from the spectrum."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal

from pydantic import Field

from curvflow.schemas.rules._base import Rule


class SpectralSgd(Rule):
    """Gradient descent with the rate and momentum that are best for a quadratic."""

    rule: Literal["spectral_sgd"] = "spectral_sgd"
    lr: float = Field(
        0.1, gt=0, description="learning rate as long as no spectrum has told one"
    )
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
