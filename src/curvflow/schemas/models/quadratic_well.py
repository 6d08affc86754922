"""Quadratic well, whose Hessian has given eigenvalues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat

from curvflow.schemas.explanations import Section
from curvflow.schemas.models._base import Model, Some


class QuadraticWell(Model):
    """One weight per output; for input 1 and target 0 sse is half of h_i w_i^2."""

    kind: Literal["quadratic_well"] = "quadratic_well"
    eigenvalues: Annotated[tuple[PositiveFloat, ...], Field(strict=False), Some] = (
        Field(description="h, of the Hessian of the loss; one per output")
    )


MODEL = QuadraticWell


def tensor_sizes(spec: QuadraticWell, inputs: int, outputs: int) -> Mapping[str, int]:
    """Return the sizes of the parameter tensors."""
    return {"well.weight": len(spec.eigenvalues)}


EXPLANATION = Section(
    group="Models whose learning coefficient is known",
    summary="one number; one parameter per eigenvalue",
    text="""\
f(x)ᵢ = √(hᵢ / 2) wᵢ x with one weight for each of the `eigenvalues` h. For the input
1 and targets 0 the loss `sse` of a sample is ½ Σ hᵢ wᵢ², with the Hessian diag(h):
whatever looks at curvature can be held against it.
""",
    source="""\
the second-order expansion of a loss about a regular minimum, as in Watanabe
(2009), *Algebraic Geometry and Statistical Learning Theory*.
""",
    example="""\
stages:
  origin: {use: data.known_answer,
           model: {kind: quadratic_well, eigenvalues: [4.0, 1.0, 0.25]}}
  fit_well:
    use: train
    data: origin
    model: {kind: quadratic_well, eigenvalues: [4.0, 1.0, 0.25], init: {normal: 1.0}}
    rule: {rule: sgd, lr: 0.1}
    seed: "${seed}"
    epochs: 20
    loss: sse
""",
)
