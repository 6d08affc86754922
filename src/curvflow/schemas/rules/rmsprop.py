"""RMSprop."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.rules._base import Rule


class RmsProp(Rule):
    """RMSprop, as torch.optim.RMSprop has it."""

    rule: Literal["rmsprop"] = "rmsprop"
    lr: float = Field(0.01, gt=0, description="learning rate")
    alpha: float = Field(0.99, ge=0, lt=1, description="decay of the mean square")
    eps: float = Field(1e-8, gt=0, description="added to the root of the mean square")
    momentum: float = Field(0.0, ge=0, lt=1, description="decay of the velocity")
    centered: bool = Field(
        False, description="take the variance of the gradient, not its mean square"
    )
    weight_decay: float = Field(0.0, ge=0, description="added to g as weight_decay w")

    @property
    def has_preconditioner(self) -> bool:
        """True: the root of the mean square."""
        return True


RULE = RmsProp
