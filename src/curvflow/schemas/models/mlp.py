"""Multi-layer perceptron."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

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
