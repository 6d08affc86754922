"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.rules._base import Rule


class Sgd(Rule):
    """Stochastic gradient descent with momentum, as torch.optim.SGD has it."""

    rule: Literal["sgd"] = "sgd"
    lr: float = Field(gt=0, description="learning rate")
    momentum: float = Field(0.0, ge=0, lt=1, description="decay of the velocity")
    nesterov: bool = Field(False, description="look ahead along the velocity")
    weight_decay: float = Field(0.0, ge=0, description="added to g as weight_decay w")


RULE = Sgd
