"""Multi-layer perceptron."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from curvflow.schemas.explanations import Section
from curvflow.schemas.models._base import (
    Activation,
    Model,
    Widths,
    dense_sizes,
    weights_of,
)


class Mlp(Model):
    """Dense layers with one activation between them and a linear last layer."""

    kind: Literal["mlp"] = "mlp"
    hidden: Widths = Field(
        description="widths of the hidden layers, first to last; none is linear"
    )
    activation: Activation = Field("relu", description="between the layers")
    linear_layers: Widths = Field(
        (), description="hidden layers, counted from 1, without activation"
    )
    bias: bool = Field(True, description="whether every layer has a bias")
    dropout: float = Field(
        0.0, ge=0, lt=1, description="share of hidden units left out at each step"
    )

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the parameter tensors."""
        return weights_of(
            (f"layer{n}" for n in range(1, len(self.hidden) + 2)), bias=self.bias
        )


MODEL = Mlp


def tensor_sizes(spec: Mlp, inputs: int, outputs: int) -> Mapping[str, int]:
    """Return the sizes of the parameter tensors."""
    return dense_sizes([inputs, *spec.hidden, outputs], bias=spec.bias)


EXPLANATION = Section(
    group="Dense networks",
    summary="any shape; sum over layers of (in + 1) out parameters; dropout",
    text="""\
h₀ = x, hₗ = φ(Wₗ hₗ₋₁ + bₗ), f(x) = W_L h_{L−1} + b_L, with the widths `hidden` in
between and φ the `activation`. Hidden layers named in `linear_layers`, counted from
1, go without φ. `bias: false` leaves out every b. With `dropout: q` each hidden unit
is left out with probability q at each step of training, and divided by 1 − q
otherwise; all units are there at evaluation.
""",
    source="""\
Rumelhart, Hinton and Williams (1986), doi:10.1038/323533a0; dropout: Srivastava et
al. (2014), JMLR 15.
""",
    example="""\
stages:
  fit_deeper:
    use: train
    data: digits
    model: {kind: mlp, hidden: [64, 32], activation: tanh, linear_layers: [2],
            dropout: 0.2}
    rule: {rule: adam, lr: 0.001}
    seed: "${seed}"
    epochs: 5
    batch_size: 64
""",
)
