"""VGG networks for small images."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from curvflow.schemas.models._base import Activation, Model, Some, SomeWidths, Widths

Stages = Annotated[tuple[SomeWidths, ...], Field(strict=False), Some]


class Vgg(Model):
    """Stages of 3x3 convolutions, each ended by 2x2 max pooling, and a dense end."""

    kind: Literal["vgg"] = "vgg"
    depth: Literal[11, 13, 16, 19] = Field(
        16, description="which of the published networks, unless stages are given"
    )
    stages: Stages | None = Field(
        None,
        description="channels of the convolutions, stage by stage; null for depth's",
    )
    width: float = Field(1.0, gt=0, description="multiple of all numbers of channels")
    hidden: Widths = Field(
        (), description="widths of dense hidden layers behind the convolutions"
    )
    batch_norm: bool = Field(
        False, description="batch normalisation after every convolution"
    )
    activation: Activation = Field("relu", description="after every layer but the last")
    dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of every dense layer's inputs left out at each step",
    )


MODEL = Vgg
SEES = "image"
