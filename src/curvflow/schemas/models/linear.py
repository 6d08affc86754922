"""Linear and softmax regression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

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
