"""The convolutional network of the regularisation study for CIFAR-10."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.explanations import Section
from curvflow.schemas.models._base import Activation, Model


class CnnCifar(Model):
    """Two convolutions, one pooled, then dense layers of 500 to 20."""

    kind: Literal["cnn_cifar"] = "cnn_cifar"
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
layer of that. `activation` is φ.
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
