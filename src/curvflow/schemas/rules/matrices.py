"""Rules that see tensors of parameters as matrices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from curvflow.schemas.explanations import Section
from curvflow.schemas.params import Names
from curvflow.schemas.rules._base import OF_TRAINING, Rule
from curvflow.schemas.rules.adaptive.adamw import AdamW

# Moments and what is made of them are kept; their decomposition takes two more.
MATRICES_PER_AXIS = 4


class Muon(Rule):
    """Steps by the orthogonal matrix nearest to the momentum; AdamW for the rest."""

    checks_problem: ClassVar[bool] = True

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
                    f"{name} cannot be combined with adamw. Move it to muon itself."
                )
        return adamw


class Shampoo(Rule):
    """Gradients scaled along each axis of a tensor by what has been seen along it."""

    rule: Literal["shampoo"] = "shampoo"
    lr: float = Field(gt=0, description="learning rate")
    momentum: float = Field(
        0.0, ge=0, lt=1, description="decay of the velocity of scaled gradients"
    )
    beta2: float = Field(
        1.0, gt=0, le=1, description="decay of the second moments; 1 adds all up"
    )
    eps: float = Field(1e-4, gt=0, description="added to the second moments")
    weight_decay: float = Field(
        0.0,
        ge=0,
        description="decoupled from g: w is multiplied by 1 - lr weight_decay",
    )
    update_every: int = Field(
        1, ge=1, description="steps between two computations of the roots"
    )
    max_size: int = Field(
        1024, ge=1, description="entries of the longest axis that is scaled"
    )

    def scratch(
        self, shapes: Sequence[tuple[int, ...]], batch_size: int, outputs: int
    ) -> int:
        """Return what second moments, roots and their decomposition hold."""
        sizes = [size for shape in shapes for size in shape or (1,)]
        return MATRICES_PER_AXIS * sum(n * n for n in sizes if n <= self.max_size)


class Soap(Rule):
    """AdamW in the eigenvectors of Shampoo's second moments."""

    rule: Literal["soap"] = "soap"
    lr: float = Field(0.003, gt=0, description="learning rate")
    beta1: float = Field(0.95, ge=0, lt=1, description="decay of the mean gradient")
    beta2: float = Field(
        0.95, ge=0, lt=1, description="decay of the mean square, and of the moments"
    )
    eps: float = Field(1e-8, gt=0, description="added to the root of the mean square")
    weight_decay: float = Field(
        0.01,
        ge=0,
        description="decoupled from g: w is multiplied by 1 - lr weight_decay",
    )
    update_every: int = Field(
        10, ge=1, description="steps between two computations of the eigenvectors"
    )
    max_size: int = Field(
        1024, ge=1, description="rows or columns of the largest matrix that is rotated"
    )

    def scratch(
        self, shapes: Sequence[tuple[int, ...]], batch_size: int, outputs: int
    ) -> int:
        """Return what moments, eigenvectors and their decomposition hold."""
        sides = [n for s in shapes if len(s) > 1 for n in (s[0], prod(s[1:]))]
        return MATRICES_PER_AXIS * sum(n * n for n in sides if n <= self.max_size)


RULES = (Muon, Shampoo, Soap)

EXPLANATIONS = (
    Section(
        group="Rules that see matrices",
        summary="steps by an orthogonal matrix close to the momentum",
        text="""\
w ← (1 − η λ) w − η a O for each matrix of weights, with λ = `weight_decay`. b ← μ b +
(1 − μ) g is the mean gradient, μ being `momentum`, and with `nesterov` μ b + (1 − μ) g
stands for it once more. O is b with its singular values moved close to 1, the smaller
the less: `ns_steps` times X ← 3.4445 X − 4.775 XX'X + 2.0315 XX'XX'X from X = b / |b|,
|b| being at least `eps`, in the precision of the training, where other implementations
take 16 bits. a is the factor of `adjust_lr`.

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
    Section(
        group="Rules that see matrices",
        summary="scales gradients along each axis of a tensor",
        text="""\
w ← (1 − η λ) w − η v, v ← μ v + P g, with μ = `momentum` and λ = `weight_decay`. P g
is the gradient of a tensor of k axes, multiplied along each by (H + εI)^(−1/2k), with ε
= `eps`: L^(−1/4) G R^(−1/4) for a matrix, and H^(−1/2) g for a bias. Each H is the sum
over all steps so far of the products of slices of g along its axis, GG' and G'G for a
matrix; with `beta2` below 1, H ← β₂ H + (1 − β₂) GG'. Axes of more than `max_size`
entries are not scaled and do not count in k.

Roots come from eigenvalues in double precision, at the first step and after every
`update_every`. A step of that kind costs the cube of each axis's length, and a model
keeps two squares of it.
""",
        source="""\
Gupta, Koren and Singer (2018), arXiv:1802.09568, Algorithm 2.
""",
        example="""\
axes:
  rule:
    shampoo: {rule: shampoo, lr: 0.1}
    often: {rule: shampoo, lr: 0.02, momentum: 0.9, beta2: 0.95, update_every: 5}
""",
    ),
    Section(
        group="Rules that see matrices",
        summary="is AdamW in the eigenvectors of Shampoo",
        text="""\
w ← (1 − η λ) w − η Q_L (m̂' / (√v̂ + ε)) Q_R' for each matrix of weights, with m ← β₁ m +
(1 − β₁) g, m' = Q_L' m Q_R, v ← β₂ v + (1 − β₂) (Q_L' g Q_R)² entry by entry, both
corrected for their bias, and λ = `weight_decay`. Q_L and Q_R are the eigenvectors of L
← β₂ L + (1 − β₂) gg' and R ← β₂ R + (1 − β₂) g'g, computed anew after every
`update_every` steps. The first gradient makes the first eigenvectors, and no step. A
convolution is a matrix of a row for each output. Sides of more than `max_size` entries
are not rotated; biases and norms are stepped as by `adamw`.

Eigenvectors are computed in full, where the source takes one step of the power method.
They are those of L plus a ramp from 0 to 10⁻⁶ of its mean eigenvalue, which fixes them
where gradients have been zero.
""",
        source="""\
Vyas et al. (2024), arXiv:2409.11321, Algorithm 3.
""",
        example="""\
axes:
  rule:
    soap: {rule: soap, lr: 0.003}
    often: {rule: soap, lr: 0.003, update_every: 1, weight_decay: 0.0}
""",
    ),
)
