"""Adam with decoupled weight decay."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.explanations import Section
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


class AdamW(Adaptive):
    """Adam with decoupled weight decay, as torch.optim.AdamW has it."""

    rule: Literal["adamw"] = "adamw"


RULE = AdamW

EXPLANATION = Section(
    group="Adaptive rules",
    summary="is Adam with decoupled decay",
    text="""\
w ← (1 − η λ) w − η m̂ / (√v̂ + ε), with m̂ and v̂ as in `adam` and λ =
`weight_decay`, which is decoupled: it is no part of g. β₁, β₂ and ε are `beta1`,
`beta2` and `eps`. With `amsgrad` the largest v so far stands for v.
""",
    source="""\
Loshchilov and Hutter (2019), in the form of `torch.optim.AdamW`; `amsgrad`: Reddi,
Kale and Kumar (2018).
""",
    example="""\
axes:
  rule:
    adamw: {rule: adamw, lr: 0.001, weight_decay: 0.01}
    amsgrad: {rule: adamw, lr: 0.001, weight_decay: 0.01, amsgrad: true}
""",
)
