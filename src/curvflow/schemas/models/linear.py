"""Linear and softmax regression."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.models._base import Model


class Linear(Model):
    """One dense layer: linear or softmax regression."""

    kind: Literal["linear"] = "linear"
    bias: bool = Field(True, description="whether the layer has a bias")


MODEL = Linear
