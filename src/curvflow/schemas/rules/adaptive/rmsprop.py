"""RMSprop."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.explanations import Section
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

EXPLANATION = Section(
    group="Adaptive rules",
    summary="divides the gradient by the root of its mean square",
    text="""\
v ← α v + (1 − α) g², u ← μ u + g / (√v + ε), w ← w − η u, with μ = `momentum`; with
`centered` v − a² stands under the root, where a ← α a + (1 − α) g. α and ε are
`alpha` and `eps`; `weight_decay` w is added to g first.
""",
    source="""\
Tieleman and Hinton (2012), and Graves (2013) for `centered`, in the form of
`torch.optim.RMSprop`. Where rounding makes v − a² negative, it counts as 0.
""",
    example="""\
axes:
  rule:
    plain: {rule: rmsprop, lr: 0.01, alpha: 0.99, eps: 1.0e-8}
    centred: {rule: rmsprop, lr: 0.01, momentum: 0.9, centered: true}
""",
)
