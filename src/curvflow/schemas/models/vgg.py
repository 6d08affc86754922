"""VGG networks for small images."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from curvflow.schemas.explanations import Section
from curvflow.schemas.models._base import Activation, Model, Some, SomeWidths, Widths

Stages = Annotated[tuple[SomeWidths, ...], Field(strict=False), Some]


class Vgg(Model):
    """Stages of 3x3 convolutions, each ended by max pooling, and a dense end."""

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

EXPLANATION = Section(
    group="Convolutional networks",
    summary="images; 14,719,818 parameters for depth 16, 3×32×32, 10 classes; "
    "batch norm by choice; dropout",
    text="""\
Stages of 3×3 convolutions, padded by 1, each followed by φ (`activation`); a max
pooling 2×2 ends a stage. Then dense layers of the widths `hidden`, none by default,
each with φ; f(x) is a dense layer of that. `dropout` leaves out inputs of the dense
layers.

`depth` 11, 13, 16 or 19 takes the five published stages of 64, 128, 256, 512 and 512
channels, for sides of 32 pixels and more. `stages: [[16], [32, 32]]` gives the
channels of each convolution instead, so that sides of 4 will do. `width: 0.25`
multiplies all of them. `batch_norm: true` puts a [batch norm](#batch-norm) between
each convolution and its φ.
""",
    source="""\
Simonyan and Zisserman (2015), arXiv:1409.1556, table 1, for small images with a
single dense layer.
""",
    example="""\
stages:
  fit_vgg:
    use: train
    data: colours
    model: {kind: vgg, depth: 16, width: 0.125, batch_norm: true, dropout: 0.3}
    rule: {rule: sgd, lr: 0.05, momentum: 0.9}
    seed: "${seed}"
    epochs: 2
    batch_size: 128
  fit_small_vgg:
    use: train
    data: mnist
    model: {kind: vgg, stages: [[8], [16, 16]], hidden: [32]}
    rule: {rule: sgd, lr: 0.05}
    seed: "${seed}"
    epochs: 2
    batch_size: 128
""",
)
