"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from curvflow.schemas.explanations import Section
from curvflow.schemas.rules._base import Rule


class Sgd(Rule):
    """Stochastic gradient descent with momentum, as torch.optim.SGD has it."""

    rule: Literal["sgd"] = "sgd"
    lr: float = Field(gt=0, description="learning rate")
    momentum: float = Field(0.0, ge=0, lt=1, description="decay of the velocity")
    nesterov: bool = Field(False, description="look ahead along the velocity")
    weight_decay: float = Field(0.0, ge=0, description="added to g as weight_decay w")

    @property
    def has_preconditioner(self) -> bool:
        """True: it is the identity."""
        return True

    @model_validator(mode="after")
    def _check_momentum(self) -> Self:
        if self.nesterov and self.momentum == 0:
            raise ValueError(
                "nesterov cannot be combined with momentum 0. Raise momentum, or "
                "remove nesterov."
            )
        return self


RULE = Sgd

EXPLANATION = Section(
    group="Gradient descent",
    summary="follows the gradient, with momentum if asked",
    text="""\
v ← μ v + g + λ w, w ← w − η v, with μ = `momentum` and λ = `weight_decay`; with
`nesterov` the step is along g + λ w + μ v instead, v being the new velocity.
""",
    source="""\
Sutskever et al. (2013), in the form of `torch.optim.SGD`.
""",
    example="""\
axes:
  rule:
    plain: {rule: sgd, lr: 0.1}
    nesterov: {rule: sgd, lr: 0.05, momentum: 0.9, nesterov: true, weight_decay: 0.0005}
""",
)
