"""Lion."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.explanations import Section
from curvflow.schemas.rules._base import Rule


class Lion(Rule):
    """Equal steps in every parameter, by the sign of a mean gradient."""

    rule: Literal["lion"] = "lion"
    lr: float = Field(1e-4, gt=0, description="learning rate, the length of a step")
    beta1: float = Field(
        0.9, ge=0, lt=1, description="share of the mean gradient in what is stepped by"
    )
    beta2: float = Field(0.99, ge=0, lt=1, description="decay of the mean gradient")
    weight_decay: float = Field(
        0.0,
        ge=0,
        description="decoupled from g: w is multiplied by 1 - lr weight_decay",
    )


RULE = Lion

EXPLANATION = Section(
    group="Adaptive rules",
    summary="steps by the sign of an average of the mean gradient and the gradient",
    text="""\
w ← (1 − η λ) w − η sign(β₁ m + (1 − β₁) g), then m ← β₂ m + (1 − β₂) g, with m = 0 at
first, λ = `weight_decay`, and β₁ and β₂ as `beta1` and `beta2`. Every step has the
length η in each parameter, whatever the size of g, so η is chosen smaller than that of
`adamw`, and λ larger. A parameter whose average is exactly 0 stays.
""",
    source="""\
Chen et al. (2023), arXiv:2302.06675.
""",
    example="""\
axes:
  rule:
    lion: {rule: lion, lr: 0.0003, weight_decay: 0.03}
    signs: {rule: lion, lr: 0.001, beta1: 0.0, beta2: 0.0}
""",
)
