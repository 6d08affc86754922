"""The convolutional network of the regularisation study for CIFAR-10."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.models._base import Activation, Model


class CnnCifar(Model):
    """Two convolutions, one pooled, then dense layers of 500, 100, 50, 20."""

    kind: Literal["cnn_cifar"] = "cnn_cifar"
    activation: Activation = Field("relu", description="after every layer but the last")
    dropout: float = Field(
        0.0, ge=0, lt=1, description="share of dense hidden units left out at each step"
    )


MODEL = CnnCifar
SEES = "image"
