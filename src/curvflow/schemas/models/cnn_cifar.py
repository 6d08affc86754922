"""The convolutional network of the regularisation study for CIFAR-10."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from curvflow.schemas.explanations import Section
from curvflow.schemas.models._base import Activation, Model, SomeWidths
from curvflow.schemas.params import Neutral

CHANNELS = (32, 64)
HIDDEN = (500, 100, 50, 20)


class CnnCifar(Model):
    """Two convolutions, one pooled, then dense layers, by default of 500 to 20."""

    kind: Literal["cnn_cifar"] = "cnn_cifar"
    channels: Annotated[
        tuple[PositiveInt, PositiveInt], Field(strict=False), Neutral(CHANNELS)
    ] = Field(CHANNELS, description="channels of the two convolutions")
    hidden: Annotated[SomeWidths, Neutral(HIDDEN)] = Field(
        HIDDEN, description="widths of the dense hidden layers"
    )
    activation: Activation = Field("relu", description="after every layer but the last")
    dropout: float = Field(
        0.0, ge=0, lt=1, description="share of dense hidden units left out at each step"
    )


MODEL = CnnCifar
SEES = "image"

EXPLANATION = Section(
    group="Convolutional networks",
    summary="images; 4,677,872 parameters for 3×32×32 and 10 classes; dropout",
    text="""\
Convolution 7×7 to 32 channels, φ, max pooling 2×2; convolution 2×2 to 64 channels, φ;
dense layers of 500, 100, 50 and 20 units, each with φ and `dropout`; f(x) is a dense
layer of that. `activation` is φ. `channels: [8, 16]` and `hidden: [125, 25]` give other
widths of the convolutions and of the dense layers, and how many of these there are.
""",
    source="""\
Jarvis (2021), as above. Its weights begin with `variance_scaling`, scale 0.2 or 5.
""",
    example="""\
stages:
  fit_cnn_cifar:
    use: train
    data: colours
    model: {kind: cnn_cifar, activation: tanh, dropout: 0.1,
            init: {variance_scaling: 0.2, bias: 0.01}}
    rule: {rule: sgd, lr: 0.005}
    seed: "${seed}"
    epochs: 2
    batch_size: 32
""",
)
