"""Adagrad."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

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
