"""Rules that see tensors of parameters as matrices."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from curvflow.schemas.explanations import Section
from curvflow.schemas.params import Names
from curvflow.schemas.rules._base import OF_TRAINING, Rule
from curvflow.schemas.rules.adamw import AdamW


class Muon(Rule):
    """Steps by the orthogonal matrix nearest to the momentum; AdamW for the rest."""

    rule: Literal["muon"] = "muon"
    lr: float = Field(0.02, gt=0, description="learning rate of the matrices")
    momentum: float = Field(
        0.95, ge=0, lt=1, description="decay of the mean gradient of the matrices"
    )
    nesterov: bool = Field(
        True, description="mix the gradient once more into what is stepped by"
    )
    weight_decay: float = Field(
        0.0,
        ge=0,
        description="decoupled from g: a matrix is multiplied by 1 - lr weight_decay",
    )
    eps: float = Field(1e-7, gt=0, description="least norm that a matrix is divided by")
    ns_steps: int = Field(
        5, ge=1, lt=100, description="steps of the Newton-Schulz iteration"
    )
    adjust_lr: Literal["original", "match_rms_adamw"] = Field(
        "original",
        description="factor of the rate for a matrix of r rows and c columns: "
        "max(1, r/c)^1/2, or 0.2 max(r, c)^1/2",
    )
    adamw: AdamW = Field(
        default_factory=AdamW,
        description="the rule of all that is no matrix, with a rate of its own",
    )
    adamw_also: Names = Field(
        (),
        description="names of matrices that it steps as well, such as embeddings and "
        "the last layer; * stands for any letters",
    )

    @field_validator("adamw")
    @classmethod
    def _leaves_training_to_muon(cls, adamw: AdamW) -> AdamW:
        for name in OF_TRAINING:
            if getattr(adamw, name) is not None:
                raise ValueError(
                    f"{name} cannot be combined with adamw. Move it to muon itself"
                )
        return adamw


RULES = (Muon,)

EXPLANATIONS = (
    Section(
        group="Rules that see matrices",
        summary="steps by an orthogonal matrix close to the momentum",
        text="""\
w ← (1 − η λ) w − η a O for each matrix of weights, with λ = `weight_decay`. b ← μ b +
(1 − μ) g is the mean gradient, μ being `momentum`, and with `nesterov` μ b + (1 − μ) g
stands for it once more. O is b with its singular values moved close to 1, between
about 0.7 and 1.2: `ns_steps` times X ← 3.4445 X − 4.775 XX'X + 2.0315 XX'XX'X from
X = b / |b|, |b| being at least `eps`, in the precision of the training, where other
implementations take 16 bits. a is the factor of `adjust_lr`.

A tensor of more than two axes, as of a convolution, is a matrix of a row for each
output. All others, biases and norms, are stepped by `adamw`, with all its
hyper-parameters and a rate of its own; so are the matrices whose names, as `network`
of the result lists them, match one of `adamw_also`. A schedule multiplies both rates,
and the curve `lr` is that of the matrices. A model without a matrix is refused.
""",
        source="""\
Jordan (2024), https://kellerjordan.github.io/posts/muon/, in the form of
`torch.optim.Muon`; Liu et al. (2025), arXiv:2502.16982, for `match_rms_adamw`.
""",
        example="""\
axes:
  rule:
    muon: {rule: muon, lr: 0.02, adamw: {lr: 0.003}}
    last: {rule: muon, lr: 0.02, momentum: 0.9, adamw: {lr: 0.003},
           adamw_also: ["layer2.*"]}
""",
    ),
)
