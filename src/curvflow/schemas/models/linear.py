"""Linear and softmax regression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from curvflow.schemas.explanations import Section
from curvflow.schemas.models._base import Model, dense_sizes, weights_of


class Linear(Model):
    """One dense layer: linear or softmax regression."""

    kind: Literal["linear"] = "linear"
    bias: bool = Field(True, description="whether the layer has a bias")

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the parameter tensors."""
        return weights_of(["layer1"], bias=self.bias)


MODEL = Linear


def tensor_sizes(spec: Linear, inputs: int, outputs: int) -> Mapping[str, int]:
    """Return the sizes of the parameter tensors."""
    return dense_sizes([inputs, outputs], bias=spec.bias)


EXPLANATION = Section(
    group="Dense networks",
    summary="any shape; C (d + 1) parameters",
    text="""\
f(x) = W x + b: linear regression for values, softmax regression for labels. `bias:
false` leaves b out. For labels some directions of the weights change nothing: adding
one vector to all rows of W. [`logistic`](#logistic) has none.
""",
    source="",
    example="""\
stages:
  fit_linear:
    use: train
    data: digits
    model: {kind: linear, init: {normal: 0.1}}
    rule: {rule: sgd, lr: 0.1}
    seed: "${seed}"
    epochs: 5
""",
)
