"""What Adam with decoupled weight decay and the rules made from it have."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.rules._base import Rule


class Adaptive(Rule):
    """Base of rules whose steps go along running means of the gradient."""

    lr: float = Field(0.001, gt=0, description="learning rate")
    beta1: float = Field(0.9, ge=0, lt=1, description="decay of the mean gradient")
    beta2: float = Field(0.999, ge=0, lt=1, description="decay of the mean square")
    eps: float = Field(1e-8, gt=0, description="added to the root of the mean square")
    amsgrad: bool = Field(
        False, description="take the largest mean square so far, not the present one"
    )
    weight_decay: float = Field(
        0.01,
        ge=0,
        description="decoupled from g: w is multiplied by 1 - lr weight_decay",
    )

    @property
    def has_preconditioner(self) -> bool:
        """True: a power of the mean square."""
        return True


class PartiallyAdaptive(Adaptive):
    """Base of those that divide by a lower power of the mean square."""

    lr: float = Field(0.1, gt=0, description="learning rate")
    p: float = Field(
        0.125,
        gt=0,
        le=0.5,
        description="power of the mean square that g is divided by; 0.5 is Adam",
    )
    eps_at: Literal["outside", "inside"] = Field(
        "outside",
        description="where eps is added: outside the root, (sqrt(v) + eps)^(2p), or "
        "inside, (v + eps)^p",
    )
