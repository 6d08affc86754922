"""Residual networks with pre-activation for small images."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from curvflow.schemas.models._base import Activation, Model


class Preresnet(Model):
    """Three stages of residual blocks, activated before their convolutions."""

    kind: Literal["preresnet"] = "preresnet"
    depth: int = Field(
        20, ge=8, description="layers with weights on the way through, 6 n + 2"
    )
    width: float = Field(
        1.0, gt=0, description="multiple of the 16, 32 and 64 channels"
    )
    batch_norm: bool = Field(
        True, description="batch normalisation before every activation"
    )
    activation: Activation = Field("relu", description="before every convolution")

    @field_validator("depth")
    @classmethod
    def _has_whole_blocks(cls, depth: int) -> int:
        if depth % 6 != 2:
            less = depth - (depth - 2) % 6
            raise ValueError(
                f"expected a depth of 6 n + 2, got {depth}. Take {less} or {less + 6}."
            )
        return depth


MODEL = Preresnet
SEES = "image"
