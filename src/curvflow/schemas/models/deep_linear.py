"""Deep linear network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from curvflow.schemas.explanations import Section
from curvflow.schemas.models._base import Model, Widths, dense_sizes


class DeepLinear(Model):
    """Dense layers without activations or biases: a product of matrices."""

    kind: Literal["deep_linear"] = "deep_linear"
    hidden: Widths = Field(
        description="widths of the hidden layers, first to last; one is reduced-rank "
        "regression"
    )


MODEL = DeepLinear


def tensor_sizes(spec: DeepLinear, inputs: int, outputs: int) -> Mapping[str, int]:
    """Return the sizes of the parameter tensors."""
    return dense_sizes([inputs, *spec.hidden, outputs], bias=False)


EXPLANATION = Section(
    group="Models whose learning coefficient is known",
    summary="any shape; sum over layers of in × out parameters",
    text="""\
f(x) = W_L ⋯ W_2 W_1 x with the widths `hidden` in between, without biases: one hidden
layer is reduced-rank regression, none is linear regression. Path norms are defined.
""",
    source="""\
Aoyagi and Watanabe (2005), doi:10.1016/j.neunet.2005.03.014; Aoyagi (2024),
doi:10.1016/j.neunet.2024.106132.
""",
    example="""\
stages:
  product: {use: data.known_answer, model: {kind: deep_linear, hidden: [4, 4]},
            inputs: 5, outputs: 3, rank: 2, num_samples: 200, seed: "${seed}"}
  fit_product:
    use: train
    data: product
    model: {kind: deep_linear, hidden: [4, 4]}
    rule: {rule: sgd, lr: 0.02}
    seed: "${seed}"
    epochs: 20
""",
)
