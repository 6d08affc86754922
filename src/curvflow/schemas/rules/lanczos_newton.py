"""Newton's method within a Krylov space."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Annotated, Literal

from pydantic import Field

from curvflow.schemas.explanations import Section
from curvflow.schemas.params import Neutral
from curvflow.schemas.rules._base import Rule


class LanczosNewton(Rule):
    """Steps by the inverse of the batch's curvature as a few Lanczos steps see it."""

    rule: Literal["lanczos_newton"] = "lanczos_newton"
    lr: float = Field(1.0, gt=0, description="learning rate")
    damping: float = Field(
        10.0, gt=0, description="added to each eigenvalue, and all of it elsewhere"
    )
    damping_follows_lr: bool = Field(
        True, description="damping is a multiple of lr, not a number by itself"
    )
    eigenvalue_factor: Annotated[float, Neutral(1.0)] = Field(
        1.0, gt=0, description="multiplies each eigenvalue before damping is added"
    )
    num_steps: int = Field(20, ge=1, description="Lanczos steps, products a step")
    matrix: Literal["ggn", "hessian"] = Field(
        "ggn", description="generalised Gauss-Newton, or the Hessian in modulus"
    )
    start: Literal["gradient", "random"] = Field(
        "gradient", description="what Lanczos starts from"
    )
    weight_decay: float = Field(0.0, ge=0, description="added to g as weight_decay w")

    def scratch(
        self, shapes: Sequence[tuple[int, ...]], batch_size: int, outputs: int
    ) -> int:
        """Return what the Krylov basis, the Ritz vectors and a product hold."""
        return (2 * self.num_steps + 8) * sum(map(prod, shapes))


RULE = LanczosNewton

EXPLANATION = Section(
    group="Rules that look at the spectrum",
    summary="inverts the batch's curvature within a Krylov space",
    text="""\
w ← w − η [Σᵢ uᵢ (uᵢ·g) / (|θᵢ| + δ) + (g − Σᵢ uᵢ (uᵢ·g)) / δ] with the Ritz vectors
uᵢ and values θᵢ of `num_steps` Lanczos steps from the `start`, `gradient` or
`random`. Within the space that is Newton's step with the matrix in modulus, so that
negative curvature is descended too; what the space does not hold is taken as flat.
With as many steps as parameters, η = 1 and little damping it is Newton's step in
modulus, and with `ggn` a linear regression is solved at once. `weight_decay` λ stands
for the loss plus λ |w|² / 2: λ w is added to g and λ to every eigenvalue.

The source prints a damping of 10 and a rate of 1, and keeps "the ratio of damping
constant to learning rate constant, δ = 10 α". There are two readings. By default δ =
`damping` times η, as the words say: what lies outside the space then moves by g /
`damping` whatever η is. From a random start that is most of g, which would explain
why the source's five rates give nearly one curve; from the gradient all of g lies in
the space, and the rates differ. With `damping_follows_lr: false` δ is the number
`damping`, as the printed call to its code may be read. At η = 1 both are the same.

`eigenvalue_factor` c puts c |θᵢ| + δ below the line, so that c > 1 moves less in sharp
directions and as far in flat ones: LOPT[c] of section 6.4.1, with c of 3 and 10.
""",
    source="""\
Granziol (2020), sections 4.3.1 and 6.4.1, LancGN and LanczosOPT; Figure 4.2b has
20 steps, batch 128 for gradient and curvature, and no weight decay.
""",
    example="""\
axes:
  rule:
    lanc_gn: {rule: lanczos_newton, lr: 1.0, damping: 10.0, num_steps: 20, matrix: ggn}
    absolute: {rule: lanczos_newton, lr: 0.1, damping: 1.0, damping_follows_lr: false,
               matrix: hessian, start: gradient, weight_decay: 0.0001}
""",
)
