"""Gradient descent regularised by the product of the Hessian with the weights."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.rules._base import Rule


class Metric(Rule):
    """Gradient descent with a regulariser that follows the curvature, H w."""

    rule: Literal["metric"] = "metric"
    lr: float = Field(gt=0, description="learning rate, of the gradient alone")
    rate: float = Field(ge=0, description="rate of the regulariser, by itself")
    form: Literal["abs_sign", "abs", "raw"] = Field(
        "abs_sign", description="the regulariser: |H w| sign(w), |H w| or H w itself"
    )

    def product_from(self) -> int:
        """Return 0: every step needs H w."""
        return 0


RULE = Metric
