"""Products of powers of weights, the normal form of a singular loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from curvflow.schemas.explanations import Section
from curvflow.schemas.models._base import Model, Some, SomeWidths


class NormalCrossing(Model):
    """Every output is a product of powers of separate weights."""

    kind: Literal["normal_crossing"] = "normal_crossing"
    powers: Annotated[tuple[SomeWidths, ...], Field(strict=False), Some] = Field(
        description="k, for each output the powers of its weights; several outputs of "
        "one weight each are a separable loss"
    )


MODEL = NormalCrossing


def tensor_sizes(spec: NormalCrossing, inputs: int, outputs: int) -> Mapping[str, int]:
    """Return the sizes of the parameter tensors."""
    return {
        f"product{number}.weight": len(powers)
        for number, powers in enumerate(spec.powers, start=1)
    }


EXPLANATION = Section(
    group="Models whose learning coefficient is known",
    summary="one number; one parameter per power",
    text="""\
f(x)ᵢ = x Πⱼ w_ij^k_ij with one list of `powers` k for each output. For the input 1
and targets 0 the loss `sse` of a sample is Σᵢ Πⱼ w_ij^(2 k_ij): `[[1, 1]]` is w₁²
w₂², whose minima are two lines that cross, `[[1], [2]]` the separable w₁² + w₂⁴.
Every loss takes this form, one product, after its singularities are resolved.
""",
    source="""\
Watanabe (2009), *Algebraic Geometry and Statistical Learning Theory*.
""",
    example="""\
stages:
  crossed: {use: data.known_answer,
            model: {kind: normal_crossing, powers: [[1, 2], [1]]}}
  fit_crossing:
    use: train
    data: crossed
    model: {kind: normal_crossing, powers: [[1, 2], [1]], init: {uniform: 1.0}}
    rule: {rule: sgd, lr: 0.05}
    seed: "${seed}"
    epochs: 20
    loss: sse
""",
)
