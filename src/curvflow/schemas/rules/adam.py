"""Adam."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.rules._base import Rule


class Adam(Rule):
    """Adam with bias correction, as torch.optim.Adam has it."""

    rule: Literal["adam"] = "adam"
    lr: float = Field(0.001, gt=0, description="learning rate")
    beta1: float = Field(0.9, ge=0, lt=1, description="decay of the mean gradient")
    beta2: float = Field(0.999, ge=0, lt=1, description="decay of the mean square")
    eps: float = Field(1e-8, gt=0, description="added to the root of the mean square")
    weight_decay: float = Field(0.0, ge=0, description="added to g as weight_decay w")

    @property
    def has_preconditioner(self) -> bool:
        """True: the root of the mean square."""
        return True


RULE = Adam
