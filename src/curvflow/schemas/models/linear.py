"""Linear and softmax regression."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.models._base import Model, weights_of


class Linear(Model):
    """One dense layer: linear or softmax regression."""

    kind: Literal["linear"] = "linear"
    bias: bool = Field(True, description="whether the layer has a bias")

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the parameter tensors."""
        return weights_of(["layer1"], bias=self.bias)


MODEL = Linear
