"""Newton's method within a Krylov space."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal

from pydantic import Field

from curvflow.schemas.rules._base import Rule


class LanczosNewton(Rule):
    """Steps by the inverse of the batch's curvature as a few Lanczos steps see it."""

    rule: Literal["lanczos_newton"] = "lanczos_newton"
    lr: float = Field(1.0, gt=0, description="learning rate")
    damping: float = Field(
        10.0, gt=0, description="added to each eigenvalue, and all of it elsewhere"
    )
    damping_follows_lr: bool = Field(
        True, description="damping is a multiple of lr, not a number by itself"
    )
    num_steps: int = Field(20, ge=1, description="Lanczos steps, products a step")
    matrix: Literal["ggn", "hessian"] = Field(
        "ggn", description="generalised Gauss-Newton, or the Hessian in modulus"
    )
    start: Literal["gradient", "random"] = Field(
        "gradient", description="what Lanczos starts from"
    )
    weight_decay: float = Field(0.0, ge=0, description="added to g as weight_decay w")

    def scratch(
        self, shapes: Sequence[tuple[int, ...]], batch_size: int, outputs: int
    ) -> int:
        """Return what the Krylov basis, the Ritz vectors and a product hold."""
        return (2 * self.num_steps + 8) * sum(map(prod, shapes))


RULE = LanczosNewton
