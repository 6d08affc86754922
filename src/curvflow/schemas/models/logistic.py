"""Logistic regression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from curvflow.schemas.explanations import Section
from curvflow.schemas.models._base import Model, dense_sizes, weights_of


class Logistic(Model):
    """Multinomial logistic regression whose last class is the reference.

    The reference's output is 0, so that no two weights give one function.
    """

    fits_values: ClassVar[bool] = False

    kind: Literal["logistic"] = "logistic"
    bias: bool = Field(True, description="whether the other classes have a bias")

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the parameter tensors."""
        return weights_of(["layer1"], bias=self.bias)


MODEL = Logistic


def tensor_sizes(spec: Logistic, inputs: int, outputs: int) -> Mapping[str, int]:
    """Return the sizes of the parameter tensors."""
    return dense_sizes([inputs, outputs - 1], bias=spec.bias)


EXPLANATION = Section(
    group="Dense networks",
    summary="any shape, labels; (C − 1)(d + 1) parameters",
    text="""\
f(x) = (W x + b, 0) with C − 1 rows: the last class is the reference and its output is
0. No two weights give the same function, so the model is identifiable and, for inputs
that span their space, its likelihood regular: the learning coefficient is D/2 with D
= (C − 1) (d + 1). `bias: false` leaves b out. Regression is refused. `init: null`
begins at zero.
""",
    source="""\
McCullagh and Nelder (1989), *Generalized Linear Models*, section 5.2.
""",
    example="""\
stages:
  fit_logistic:
    use: train
    data: digits
    model: {kind: logistic, init: null}
    rule: {rule: sgd, lr: 0.5}
    epochs: 5
""",
)
