"""Adagrad."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.explanations import Section
from curvflow.schemas.rules._base import Rule


class Adagrad(Rule):
    """Adagrad, as torch.optim.Adagrad has it."""

    rule: Literal["adagrad"] = "adagrad"
    lr: float = Field(0.01, gt=0, description="learning rate")
    lr_decay: float = Field(
        0.0, ge=0, description="lr is divided by 1 + t lr_decay after t steps"
    )
    initial_accumulator: float = Field(
        0.0, ge=0, description="sum of squares before the first step"
    )
    eps: float = Field(1e-10, gt=0, description="added to the root of the sum")
    weight_decay: float = Field(0.0, ge=0, description="added to g as weight_decay w")

    @property
    def has_preconditioner(self) -> bool:
        """True: the root of the sum of squares."""
        return True


RULE = Adagrad

EXPLANATION = Section(
    group="Adaptive rules",
    summary="divides it by the root of the sum of all squares",
    text="""\
s ← s + g², w ← w − η / (1 + t δ) · g / (√s + ε) after t steps, with δ = `lr_decay`
and ε = `eps`; s begins at `initial_accumulator`, and `weight_decay` w is added to g
first.
""",
    source="""\
Duchi, Hazan and Singer (2011), in the form of `torch.optim.Adagrad`.
""",
    example="""\
axes:
  rule:
    adagrad: {rule: adagrad, lr: 0.1, lr_decay: 0.01, initial_accumulator: 0.1}
""",
)
