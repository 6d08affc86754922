"""Adam."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.explanations import Section
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

EXPLANATION = Section(
    group="Adaptive rules",
    summary="divides the mean gradient by the root of the mean square",
    text="""\
m ← β₁ m + (1 − β₁) g, v ← β₂ v + (1 − β₂) g², w ← w − η m̂ / (√v̂ + ε), where m̂ and
v̂ are divided by 1 − βᵗ; `weight_decay` w is added to g first.
""",
    source="""\
Kingma and Ba (2015), Algorithm 1, in the form of `torch.optim.Adam`.
""",
    example="""\
axes:
  rule:
    adam: {rule: adam, lr: 0.001, beta1: 0.9, beta2: 0.999, eps: 1.0e-8}
""",
)
