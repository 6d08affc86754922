"""Partially adaptive Adam."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.explanations import Section
from curvflow.schemas.rules.adaptive.adamw import Adaptive


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


class Padam(PartiallyAdaptive):
    """Adam that divides by a lower power of the mean square."""

    rule: Literal["padam"] = "padam"
    amsgrad: bool = Field(
        True, description="take the largest mean square so far, not the present one"
    )
    weight_decay: float = Field(
        0.0, ge=0, description="added to g as weight_decay w, unless decoupled"
    )
    decoupled: bool = Field(
        False,
        description="multiply w by 1 - lr weight_decay instead of adding to g",
    )


RULE = Padam

EXPLANATION = Section(
    group="Adaptive rules",
    summary="is Adam with a smaller power than the root",
    text="""\
w ← w − η m̂ / (√v̂ + ε)²ᵖ, with m̂ and v̂ as in `adam` and `p` between 0, the
gradient's mean alone, and ½, which is Adam. `eps_at: inside` divides by (v̂ + ε)ᵖ
instead. The two differ much: with p = 1/8 and `eps` = 10⁻⁸ the divisor is at least
0.01 outside the root and 0.1 inside it. `weight_decay` w is added to g first; with
`decoupled` w is multiplied by 1 − η λ instead. `beta1` and `beta2` are those of Adam;
`amsgrad`, the largest v so far for v, is on unless turned off.
""",
    source="""\
Chen et al. (2020), arXiv:1806.06763, with both means corrected for their bias as in
Granziol (2020), Algorithm 9. amsgrad takes the largest v before that correction, as
torch does, so that p = ½ is `adam`, and `adamw` if `decoupled`.
""",
    example="""\
axes:
  rule:
    padam: {rule: padam, lr: 0.1, p: 0.125}
    padamw: {rule: padam, lr: 0.1, p: 0.2, weight_decay: 0.001, decoupled: true}
    printed: {rule: padam, lr: 0.1, p: 0.125, eps_at: inside, amsgrad: false}
""",
)
