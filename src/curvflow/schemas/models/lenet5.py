"""LeNet-5."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.models._base import Activation, Model, Pooling, weights_of


class Lenet5(Model):
    """Two convolutions with pooling, then dense layers of 120, 84 and the outputs."""

    kind: Literal["lenet5"] = "lenet5"
    padding: int = Field(
        2,
        ge=0,
        description="zeros around the image, pixels; 2 for sides of 28, 0 for 32",
    )
    activation: Activation = Field("tanh", description="after every layer but the last")
    pooling: Pooling = Field("avg", description="mean or largest of 2x2 places")
    dropout: float = Field(
        0.0, ge=0, lt=1, description="share of dense hidden units left out at each step"
    )

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the parameter tensors."""
        return weights_of(("conv1", "conv2", "dense1", "dense2", "dense3"))


MODEL = Lenet5
SEES = "image"
